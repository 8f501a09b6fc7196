"""Undoing, on the float graph, detours that TensorFlow and tf2onnx take around what ONNX has directly.

* A one-dimensional convolution or pool arrives as a two-dimensional one between Unsqueeze and Squeeze.
* A Dense layer on a tensor of rank 3 or more arrives as Reshape, a rank-2 MatMul, and a Reshape back whose sizes
  are computed at run time. ONNX MatMul takes such tensors as they are.
* Repeating the values along an axis (UpSampling with nearest neighbours) arrives as Unsqueeze, Tile and a Reshape
  whose sizes are computed at run time. ONNX has Resize, which runtimes know how to do on integers.

* Swish arrives as x * sigmoid(1 * x).

Most of them put data movements between a Q/DQ pair and the operation it belongs to.
"""

from __future__ import annotations

import numpy as np

from qdq_workbench.export.clean_up import drop_identities
from qdq_workbench.export.clips import restore_clips
from qdq_workbench.export.convolution_settings import restore_convolution_settings
from qdq_workbench.export.einsum import restore_batched_matmul
from qdq_workbench.export.flips import constant_axes
from qdq_workbench.export.graph import Graph, Node
from qdq_workbench.export.resize_scales import correct_resizes
from qdq_workbench.export.transposes import permutation, to_channels_first, to_channels_last

_WINDOWED = frozenset({"AveragePool", "Conv", "ConvTranspose", "MaxPool"})


def restore_float_patterns(graph: Graph) -> None:
    """Undo all detours.

    Args:
        graph: The float graph to change.
    """
    fix_reshape_sizes(graph)
    drop_products_with_one(graph)
    restore_convolution_settings(graph)
    correct_resizes(graph)
    restore_one_dimensional(graph)
    restore_matmul_rank(graph)
    restore_nearest_resize(graph)
    restore_batched_matmul(graph)
    restore_clips(graph)


def drop_products_with_one(graph: Graph) -> None:
    """Drop multiplications of floats by a single 1.

    Args:
        graph: The float graph to change.
    """
    for node in graph.sorted_nodes():
        if node.op != "Mul" or node.domain:
            continue
        for index, tensor in enumerate(node.inputs):
            value = graph.constant(tensor)
            if value is not None and value.ndim == 0 and value.dtype == np.float32 and value == 1:
                name, written, source = node.name, node.output, node.inputs[1 - index]
                graph.remove(node)
                graph.add("Identity", [source], name, output=written)
                break
    drop_identities(graph)


def fix_reshape_sizes(graph: Graph) -> None:
    """Give a Reshape constant sizes where its output's shape is known but for one axis.

    Args:
        graph: The float graph to change.
    """
    for node in graph.sorted_nodes():
        if node.op != "Reshape" or node.domain or graph.constant(node.inputs[1]) is not None:
            continue
        shape = graph.shape(node.output)
        if shape is None or shape.count(None) > 1 or 0 in shape:
            continue
        sizes = np.array([-1 if size is None else size for size in shape], np.int64)
        graph.set_inputs(node, [node.inputs[0], graph.add_constant(f"{node.name}/shape", sizes)])
    graph.prune()


def restore_one_dimensional(graph: Graph) -> None:
    """Turn two-dimensional convolutions and pools over an inserted axis into one-dimensional ones.

    Args:
        graph: The float graph to change.
    """
    for node in graph.sorted_nodes():
        if node.op in _WINDOWED and not node.domain and graph.rank(node.inputs[0]) in (4, None):
            if (axis := _inserted_axis(graph, node)) is not None:
                _drop_axis(graph, node, axis)
            elif (axis := _inserted_between_channels_first(graph, node)) is not None:
                _drop_channels_first_axis(graph, node, axis)
    graph.prune()


def _inserted_axis(graph: Graph, node: Node) -> int | None:
    """Return the axis (of the channels-last tensor) that is inserted before and removed behind a windowed node."""
    before = graph.producer(node.inputs[0])
    if before is None or permutation(before) != to_channels_first(4):
        return None
    unsqueeze = graph.producer(before.inputs[0])
    if unsqueeze is None or unsqueeze.op != "Unsqueeze":
        return None
    axis = _single_axis(graph, unsqueeze)
    afters = graph.readers(node.output)
    if axis not in (1, 2) or not afters or node.output in graph.outputs:
        return None
    for after in afters:
        if permutation(after) != to_channels_last(4) or after.output in graph.outputs:
            return None
        if not _is_removed(graph, after.output, axis):
            return None
    return axis if _is_trivial_along(node, axis - 1) else None


def _inserted_between_channels_first(graph: Graph, node: Node) -> int | None:
    """Return the axis that is inserted and removed around a windowed node of a channels-first layer."""
    unsqueeze = graph.producer(node.inputs[0])
    if unsqueeze is None or unsqueeze.op != "Unsqueeze" or node.output in graph.outputs:
        return None
    axis = _single_axis(graph, unsqueeze)
    if axis not in (2, 3) or not _is_removed(graph, node.output, axis):
        return None
    return axis if _is_trivial_along(node, axis - 2) else None


def _is_removed(graph: Graph, tensor: str, axis: int) -> bool:
    """Tell whether every reader of a tensor squeezes this axis."""
    readers = graph.readers(tensor)
    return bool(readers) and all(r.op == "Squeeze" and _single_axis(graph, r) == axis for r in readers)


def _single_axis(graph: Graph, node: Node) -> int | None:
    axes = constant_axes(graph, node)
    return axes[0] % 4 if axes is not None and len(axes) == 1 else None


def _is_trivial_along(node: Node, spatial: int) -> bool:
    pads = node.get("pads", [0] * 4)
    return node.get("kernel_shape")[spatial] == 1 and pads[spatial] == 0 and pads[spatial + 2] == 0


def _drop_axis(graph: Graph, node: Node, axis: int) -> None:
    before = graph.producer(node.inputs[0])
    unsqueeze = graph.producer(before.inputs[0]) if before is not None else None
    if unsqueeze is None:
        return
    source = unsqueeze.inputs[0]
    entry = graph.add("Transpose", [source], f"{node.name}/to_channels_first", perm=[0, 2, 1])
    squeezes = [squeeze for after in graph.readers(node.output) for squeeze in graph.readers(after.output)]
    _make_one_dimensional(graph, node, axis - 1, entry.output)
    for squeeze in squeezes:
        written = squeeze.output
        graph.remove(squeeze)
        graph.add("Transpose", [node.output], f"{node.name}/to_channels_last", output=written, perm=[0, 2, 1])
        last = graph.shape(written)
        if last is not None:
            graph.shapes[node.output] = (last[0], last[2], last[1])
    graph.shapes[entry.output] = _swapped(graph.shape(source))


def _drop_channels_first_axis(graph: Graph, node: Node, axis: int) -> None:
    unsqueeze = graph.producer(node.inputs[0])
    if unsqueeze is None:
        return
    squeezes = graph.readers(node.output)
    _make_one_dimensional(graph, node, axis - 2, unsqueeze.inputs[0])
    for squeeze in squeezes:
        written = squeeze.output
        graph.remove(squeeze)
        graph.add("Identity", [node.output], f"{node.name}/result", output=written)
        if graph.shape(written) is not None:
            graph.shapes[node.output] = graph.shapes[written]
    drop_identities(graph)


def _make_one_dimensional(graph: Graph, node: Node, spatial: int, source: str) -> None:
    """Let a windowed node read a tensor with one spatial axis and write another one, without shape yet."""
    for key in ("kernel_shape", "strides", "dilations", "output_padding", "output_shape"):
        if key in node.attributes:
            node.set(key, [size for index, size in enumerate(node.get(key)) if index != spatial])
    if "pads" in node.attributes:
        node.set("pads", [size for index, size in enumerate(node.get("pads")) if index % 2 != spatial])
    rest = list(node.inputs[1:])
    if rest:
        axes = graph.add_constant(f"{node.name}/kernel_axes", np.array([2 + spatial], np.int64))
        rest[0] = graph.add("Squeeze", [rest[0], axes], f"{node.name}/kernel").output
    graph.set_inputs(node, [source, *rest])
    old = node.output
    graph.set_output(node, graph.fresh(f"{old}/one_dimensional"))
    graph.shapes.pop(old, None)


def _swapped(shape: tuple[int | None, ...] | None) -> tuple[int | None, ...]:
    return (None, None, None) if shape is None else (shape[0], shape[2], shape[1])


def restore_matmul_rank(graph: Graph) -> None:
    """Let a rank-2 MatMul between two Reshapes work on the tensor of higher rank.

    Args:
        graph: The float graph to change.
    """
    for node in graph.sorted_nodes():
        if node.op != "MatMul" or node not in graph:
            continue
        flatten, kernel = graph.producer(node.inputs[0]), graph.shape(node.inputs[1])
        if flatten is None or flatten.op != "Reshape" or kernel is None or len(kernel) != 2:
            continue
        source = graph.shape(flatten.inputs[0])
        back = graph.readers(node.output)
        if source is None or len(source) < 3 or source[-1] != kernel[0] or len(back) != 1:
            continue
        if node.output in graph.outputs or not _restores_leading_axes(graph, back[0], flatten.inputs[0]):
            continue
        graph.set_inputs(node, [flatten.inputs[0], node.inputs[1]])
        written = back[0].output
        graph.remove(back[0])
        graph.shapes.pop(node.output, None)
        graph.set_output(node, written)
    graph.prune()


def _restores_leading_axes(graph: Graph, reshape: Node, source: str) -> bool:
    """Tell whether a Reshape gives back the leading axes of `source`, computed from its shape or known statically."""
    before, after = graph.shape(source), graph.shape(reshape.output)
    if reshape.op != "Reshape" or before is None or after is None or len(before) != len(after):
        return False
    wanted = graph.constant(reshape.inputs[1])
    if wanted is not None:
        fixed = list(before[1:-1])
        return None not in fixed and [int(size) for size in wanted[1:-1]] == fixed and before[0] in (None, wanted[0], 1)
    concat = _through_casts(graph, reshape.inputs[1])
    if concat is None or concat.op != "Concat":
        return False
    gather = _through_casts(graph, concat.inputs[0])
    if gather is None or gather.op not in ("Gather", "Slice"):
        return False
    shape = _through_casts(graph, gather.inputs[0])
    leading = graph.constant(gather.inputs[1])
    return (
        shape is not None
        and shape.op == "Shape"
        and shape.inputs[0] == source
        and gather.op == "Gather"
        and leading is not None
        and [int(axis) for axis in leading.ravel()] == list(range(len(before) - 1))
    )


def _through_casts(graph: Graph, tensor: str) -> Node | None:
    node = graph.producer(tensor)
    while node is not None and node.op in ("Cast", "Identity"):
        node = graph.producer(node.inputs[0])
    return node


def restore_nearest_resize(graph: Graph) -> None:
    """Turn the repetition of values along one or more spatial axes into a channels-first nearest Resize.

    Args:
        graph: The float graph to change.
    """
    for reshape in graph.sorted_nodes():
        if reshape not in graph or reshape.op != "Reshape":
            continue
        repeat = _repetition(graph, reshape)
        if repeat is None:
            continue
        source, axis, times = repeat
        rank = len(graph.shape(source) or ())
        scales = np.ones(rank, np.float32)
        before = graph.producer(source)
        inner = graph.producer(before.inputs[0]) if before is not None else None
        if permutation(before) == to_channels_last(rank) and inner is not None and _is_nearest(inner):
            scales = graph.constants[inner.inputs[2]].copy()
            source = graph.producer(inner.inputs[0]).inputs[0]  # type: ignore[union-attr]
        scales[to_channels_first(rank).index(axis)] *= times
        written = reshape.output
        graph.remove(reshape)
        _add_nearest_resize(graph, source, written, scales)
    graph.prune()


def _repetition(graph: Graph, reshape: Node) -> tuple[str, int, int] | None:
    """Return (source, axis, times) where a Reshape ends a repetition along one spatial axis."""
    tile = graph.producer(reshape.inputs[0])
    unsqueeze = graph.producer(tile.inputs[0]) if tile is not None and tile.op == "Tile" else None
    if tile is None or unsqueeze is None or unsqueeze.op != "Unsqueeze":
        return None
    axes, times = constant_axes(graph, unsqueeze), graph.constant(tile.inputs[1])
    before, after = graph.shape(unsqueeze.inputs[0]), graph.shape(reshape.output)
    if axes is None or times is None or before is None or after is None or len(axes) != 1:
        return None
    rank, inserted = len(before), axes[0] % (len(before) + 1)
    axis = inserted - 1
    if rank < 3 or len(after) != rank or not 0 < axis < rank - 1:
        return None
    if any(count != 1 for index, count in enumerate(times) if index != inserted):
        return None
    size, count = before[axis], int(times[inserted])
    if (
        size is None
        or after[axis] != size * count
        or any(
            before[other] != after[other] or (before[other] is None and other > 0)
            for other in range(rank)
            if other != axis
        )
    ):
        return None
    return unsqueeze.inputs[0], axis, count


def _is_nearest(node: Node) -> bool:
    return node.op == "Resize" and node.get("mode") == b"nearest" and node.name.endswith("/nearest")


def _add_nearest_resize(graph: Graph, source: str, written: str, scales: np.ndarray) -> None:
    rank = len(scales)
    first, last = to_channels_first(rank), to_channels_last(rank)
    name = written.partition(":")[0]
    entry = graph.add("Transpose", [source], f"{name}/to_channels_first", perm=list(first))
    resize = graph.add(
        "Resize",
        [entry.output, "", graph.add_constant(f"{name}/scales", scales)],
        f"{name}/nearest",
        mode="nearest",
        coordinate_transformation_mode="asymmetric",
        nearest_mode="floor",
    )
    graph.add("Transpose", [resize.output], f"{name}/to_channels_last", output=written, perm=list(last))
    for tensor, shape in ((entry.output, graph.shape(source)), (resize.output, graph.shape(written))):
        if shape is not None:
            graph.shapes[tensor] = tuple(shape[axis] for axis in first)
