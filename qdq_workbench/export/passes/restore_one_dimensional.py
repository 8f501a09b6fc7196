"""Two-dimensional convolutions and pools between Unsqueeze and Squeeze -> one-dimensional ones.

TensorFlow gives this form to Conv1D and one-dimensional pools. The axis separates a Q/DQ pair from its operation.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from qdq_workbench.export.passes.contract import GraphPass
from qdq_workbench.export.passes.drop_identities import drop_identities
from qdq_workbench.export.passes.patterns import constant_axes
from qdq_workbench.graph.operators import WINDOWED
from qdq_workbench.onnx_graph.graph import Graph, Node
from qdq_workbench.onnx_graph.transposes import permutation, to_channels_first, to_channels_last


def restore_one_dimensional(graph: Graph) -> None:
    """Turn two-dimensional convolutions and pools over an inserted axis into one-dimensional ones."""
    for node in graph.sorted_nodes():
        # tf2onnx does not infer every shape.
        if node.op in WINDOWED and not node.domain and graph.rank(node.inputs[0]) in (4, None):
            if (axis := _inserted_axis(graph, node)) is not None:
                _drop_axis(graph, node, axis)
            elif (axis := _inserted_between_channels_first(graph, node)) is not None:
                _drop_channels_first_axis(graph, node, axis)
    graph.prune()


def _inserted_axis(graph: Graph, node: Node) -> int | None:
    """Return the axis (of the channels-last tensor) that is inserted before and removed after a windowed node."""
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
    """Return whether every reader of a tensor squeezes this axis."""
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
    """Make a windowed node read a tensor with one spatial axis and write a new one, whose shape is not set yet."""
    for key in ("kernel_shape", "strides", "dilations", "output_padding", "output_shape"):
        if key in node.attributes:
            node.set(key, [size for index, size in enumerate(node.get(key)) if index != spatial])
    if "pads" in node.attributes:
        node.set("pads", [size for index, size in enumerate(node.get("pads")) if index % 2 != spatial])
    rest = list(node.inputs[1:])
    if rest:
        rest[0] = _without_axis(graph, rest[0], 2 + spatial, f"{node.name}/kernel")
    graph.set_inputs(node, [source, *rest])
    old = node.output
    graph.set_output(node, graph.fresh(f"{old}/one_dimensional"))
    graph.shapes.pop(old, None)


def _without_axis(graph: Graph, kernel: str, axis: int, name: str) -> str:
    """Return a kernel without an axis of size 1."""
    values = graph.constant(kernel)
    if values is not None:
        return graph.add_constant(name, np.squeeze(values, axis))
    # A node, because the kernel is still an input of the graph; `write_weight` applies it to the integers.
    shape, axes = graph.shape(kernel), graph.add_constant(f"{name}_axes", np.array([axis], np.int64))
    squeezed = graph.add("Squeeze", [kernel, axes], name).output
    if shape is not None:
        graph.shapes[squeezed] = (*shape[:axis], *shape[axis + 1 :])
    return squeezed


def _swapped(shape: tuple[int | None, ...] | None) -> tuple[int | None, ...]:
    return (None, None, None) if shape is None else (shape[0], shape[2], shape[1])


def _two_dimensional(graph: Graph) -> Iterator[Node]:
    """Yield the nodes that the pass rewrites, also if later passes have moved the Transposes around them."""
    for node in graph.nodes:
        if node.op not in WINDOWED or node.domain or len(node.get("kernel_shape") or ()) != 2:
            continue
        inserted, readers = _inserted_spatially(graph, node), graph.readers(node.output)
        if inserted is None or not readers or node.output in graph.outputs or not _is_trivial_along(node, inserted):
            continue
        if all(_removed_spatially(graph, reader) == inserted for reader in readers):
            yield node


def _inserted_spatially(graph: Graph, node: Node) -> int | None:
    """Return the spatial axis that an Unsqueeze inserts before a windowed node, a Transpose between them or not."""
    before = graph.producer(node.inputs[0])
    turned = permutation(before) == to_channels_first(4)
    source = graph.producer(before.inputs[0]) if before is not None and turned else before
    return _spatial(_single_axis(graph, source), turned) if source is not None and source.op == "Unsqueeze" else None


def _removed_spatially(graph: Graph, reader: Node) -> int | None:
    """Return the spatial axis that a Squeeze removes after a windowed node, a Transpose between them or not."""
    turned = permutation(reader) == to_channels_last(4)
    if turned and not graph.has_one_reader(reader.output):
        return None
    squeeze = graph.readers(reader.output)[0] if turned else reader
    return _spatial(_single_axis(graph, squeeze), turned) if squeeze.op == "Squeeze" else None


def _spatial(axis: int | None, channels_last: bool) -> int | None:
    """Return the number (0 or 1) of a spatial axis; None for the axes of batch and channels."""
    first = 1 if channels_last else 2
    return axis - first if axis in (first, first + 1) and axis is not None else None


PASS = GraphPass(
    restore_one_dimensional,
    needs="tf2onnx's Transposes around convolutions, and constant axes of Unsqueeze and Squeeze.",
    holds="No convolution or pool works on an axis of size 1 that is inserted before it and removed behind it.",
    refuses="Kernels that reach along the inserted axis, and results that are read elsewhere with that axis.",
    denied_by=_two_dimensional,
)
