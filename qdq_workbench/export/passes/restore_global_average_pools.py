"""ReduceMean over all spatial axes -> [Transpose ->] GlobalAveragePool [-> Squeeze]."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from qdq_workbench.export.passes.contract import GraphPass
from qdq_workbench.export.passes.patterns import constant_axes
from qdq_workbench.graph.operators import MOVES
from qdq_workbench.onnx_graph.graph import Graph, Node
from qdq_workbench.onnx_graph.qdq_graph import DEQUANTIZE, QUANTIZE
from qdq_workbench.onnx_graph.transposes import to_channels_last, transpose_output, transposed_input


def restore_global_average_pools(graph: Graph) -> None:
    """Turn the mean over all spatial axes into GlobalAveragePool."""
    for node in list(_means(graph)):
        rank = len(graph.shape(node.inputs[0]) or ())
        keeps, written, name, source = node.get("keepdims", 1), node.output, node.name, node.inputs[0]
        channels_last = _axes(graph, node) == list(range(1, rank - 1))
        graph.remove(node)
        if channels_last:
            source = transposed_input(graph, source, rank)
        if keeps:
            pool = graph.add("GlobalAveragePool", [source], name, output=written)
            if channels_last:
                transpose_output(graph, pool, 0, to_channels_last(rank))
            continue
        pool = graph.add("GlobalAveragePool", [source], name)
        shape = graph.shape(source)
        if shape is not None:
            graph.shapes[pool.output] = (*shape[:2], *[1] * (rank - 2))
        constant = graph.add_constant(f"{name}/axes", np.arange(2, rank, dtype=np.int64))
        graph.add("Squeeze", [pool.output, constant], f"{name}/Squeeze", output=written)
    graph.prune()


def _means(graph: Graph) -> Iterator[Node]:
    """Yield the means over all spatial axes: of flipped nodes, and in both layouts between pairs.

    In other nodes the second axis need not be that of the channels: a mean over the last axes may belong to a
    normalization. Between pairs a mean is a layer's own, and runtimes have an integer kernel for the pool alone.
    """
    for node in graph.nodes:
        axes = _axes(graph, node)
        rank = graph.rank(node.inputs[0]) if axes else None
        if rank is None or rank < 3:
            continue
        if axes == list(range(2, rank)):
            if node in graph.channels_first or _is_between_pairs(graph, node):
                yield node
        elif axes == list(range(1, rank - 1)) and node not in graph.channels_first and _is_between_pairs(graph, node):
            yield node


def _axes(graph: Graph, node: Node) -> list[int] | None:
    """Return the axes of a reduction in order, counted from the first; None if unknown."""
    rank = graph.rank(node.inputs[0]) if node.op == "ReduceMean" else None
    axes = constant_axes(graph, node) if rank is not None else None
    return None if rank is None or axes is None else sorted(axis % rank for axis in axes)


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
    holds="No flipped ReduceMean, and none between pairs, takes the mean over all spatial axes.",
    refuses="Means of nodes that were not flipped and are not between pairs: their second axis need not hold channels.",
    denied_by=_means,
)
