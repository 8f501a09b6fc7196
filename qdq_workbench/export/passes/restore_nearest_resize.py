"""Unsqueeze -> Tile -> Reshape, which repeats values along an axis, becomes Resize.

tf2onnx gives this form to upsampling with the nearest neighbour. Runtimes compute Resize on integers.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from qdq_workbench.export.passes.contract import GraphPass
from qdq_workbench.export.passes.patterns import constant_axes
from qdq_workbench.onnx_graph.graph import Graph, Node
from qdq_workbench.onnx_graph.transposes import permutation, to_channels_first, to_channels_last


def restore_nearest_resize(graph: Graph) -> None:
    """Turn the repetition of values along one or more spatial axes into a channels-first nearest Resize."""
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
        # The other axis is a Resize by now: one Resize repeats along both.
        if permutation(before) == to_channels_last(rank) and inner is not None and _is_nearest(inner):
            scales = graph.constants[inner.inputs[2]].copy()
            source = graph.producer(inner.inputs[0]).inputs[0]  # type: ignore[union-attr]
        scales[to_channels_first(rank).index(axis)] *= times
        graph.remove(reshape)
        _add_nearest_resize(graph, source, reshape, scales)
    graph.prune()


def _repetition(graph: Graph, reshape: Node) -> tuple[str, int, int] | None:
    """Return (source, axis, times) if a Reshape ends a repetition along one spatial axis."""
    tile = graph.producer(reshape.inputs[0])
    unsqueeze = graph.producer(tile.inputs[0]) if tile is not None and tile.op == "Tile" else None
    if tile is None or unsqueeze is None or unsqueeze.op != "Unsqueeze":
        return None
    axes, times = constant_axes(graph, unsqueeze), graph.constant(tile.inputs[1])
    before, after = graph.shape(unsqueeze.inputs[0]), graph.shape(reshape.output)
    if axes is None or times is None or before is None or after is None or len(axes) != 1:
        return None
    rank, inserted = len(before), axes[0] % (len(before) + 1)
    # Tile along an axis that was inserted behind another repeats every value of that one next to itself.
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
    # By its name: other Resizes may round coordinates in another way.
    return node.op == "Resize" and node.get("mode") == b"nearest" and node.name.endswith("/nearest")


def _add_nearest_resize(graph: Graph, source: str, reshape: Node, scales: np.ndarray) -> None:
    rank = len(scales)
    first, last = to_channels_first(rank), to_channels_last(rank)
    # Not the name of the tensor: that of a pair's source names the layer in front of the pair, such as a Dropout.
    name, written = reshape.name, reshape.output
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


def _repetitions(graph: Graph) -> Iterator[Node]:
    return (node for node in graph.nodes if node.op == "Reshape" and _repetition(graph, node) is not None)


PASS = GraphPass(
    restore_nearest_resize,
    needs="Known sizes of all spatial axes, and constant counts.",
    holds="No Reshape ends a repetition of values along one spatial axis.",
    refuses="Repetitions along the batch or the channels, and open sizes.",
    denied_by=_repetitions,
)
