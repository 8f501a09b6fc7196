"""ReduceMean over all axes but two -> [Transpose ->] GlobalAveragePool [-> Squeeze]."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from qdq_workbench.export.passes.contract import GraphPass
from qdq_workbench.export.passes.patterns import constant_axes
from qdq_workbench.graph.operators import MOVES
from qdq_workbench.onnx_graph.graph import Graph, Node
from qdq_workbench.onnx_graph.qdq_graph import DEQUANTIZE, QUANTIZE
from qdq_workbench.onnx_graph.transposes import inverse, transpose_output, transposed


def restore_global_average_pools(graph: Graph) -> None:
    """Turn the mean over all axes but the batch's and one into GlobalAveragePool, with that one as its channels."""
    for node, kept in list(_means(graph)):
        rank = len(graph.shape(node.inputs[0]) or ())
        keeps, written, name, source = node.get("keepdims", 1), node.output, node.name, node.inputs[0]
        graph.remove(node)
        # Rotated, as the usual layouts are from each other: their Transposes cancel, or may be read.
        perm = (0, *range(kept, rank), *range(1, kept))
        source = transposed(graph, source, perm)
        if keeps:
            pool = graph.add("GlobalAveragePool", [source], name, output=written)
            transpose_output(graph, pool, 0, inverse(perm))
            continue
        pool = graph.add("GlobalAveragePool", [source], name)
        shape = graph.shape(source)
        if shape is not None:
            graph.shapes[pool.output] = (*shape[:2], *[1] * (rank - 2))
        constant = graph.add_constant(f"{name}/axes", np.arange(2, rank, dtype=np.int64))
        graph.add("Squeeze", [pool.output, constant], f"{name}/Squeeze", output=written)
    graph.prune()


def _means(graph: Graph) -> Iterator[tuple[Node, int]]:
    """Yield the means over all axes but two, with the second of those: axis 1 in flipped nodes, any between pairs.

    Of other nodes axis 1 need not be that of the channels: a mean over the last axes may belong to a
    normalization. Between pairs a mean is a layer's own, and runtimes have an integer kernel for the pool alone.
    """
    for node in graph.nodes:
        kept = _kept_axis(graph, node)
        if kept is None:
            continue
        if (kept == 1 and node in graph.channels_first) or _is_between_pairs(graph, node):
            yield node, kept


def _kept_axis(graph: Graph, node: Node) -> int | None:
    """Return the one axis that a mean keeps beside the batch's; None for means over fewer axes, and other nodes.

    It may be any axis: a flipped layer in channels_first, behind one in channels_last, averages axes 1 and 3.
    """
    rank = graph.rank(node.inputs[0]) if node.op == "ReduceMean" else None
    axes = constant_axes(graph, node) if rank is not None else None
    if rank is None or not axes:
        return None
    left = sorted(set(range(rank)) - {axis % rank for axis in axes})
    return left[1] if len(left) == 2 and left[0] == 0 else None


def _is_between_pairs(graph: Graph, node: Node) -> bool:
    """Return whether a node reads a pair and only pairs read it, movements of data aside."""
    before = graph.producer(node.inputs[0])
    while before is not None and before.op in MOVES:
        before = graph.producer(before.inputs[0])
    if before is None or before.op != DEQUANTIZE:
        return False
    tensors = list(node.outputs)
    while tensors:
        tensor = tensors.pop()
        readers = graph.readers(tensor)
        if tensor in graph.outputs or not readers:
            return False
        for reader in readers:
            if reader.op in MOVES:
                tensors += reader.outputs
            elif reader.op != QUANTIZE:
                return False
    return True


PASS = GraphPass(
    restore_global_average_pools,
    needs="`move_to_channels_first`, which tells where the channels are; pairs joined.",
    holds="No flipped ReduceMean takes the mean over all spatial axes, and none between pairs all axes but two.",
    refuses="Means of nodes that were not flipped and are not between pairs: their second axis need not hold channels.",
    denied_by=lambda graph: (node for node, _ in _means(graph)),
)
