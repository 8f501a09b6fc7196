"""ReduceMean over all spatial axes -> GlobalAveragePool [-> Squeeze]."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from qdq_workbench.export.passes.contract import GraphPass
from qdq_workbench.export.passes.patterns import constant_axes
from qdq_workbench.onnx_graph.graph import Graph, Node


def restore_global_average_pools(graph: Graph) -> None:
    """Turn the mean over all spatial axes into GlobalAveragePool."""
    for node in list(_means(graph)):
        rank = len(graph.shape(node.inputs[0]) or ())
        keeps, written, name, source = node.get("keepdims", 1), node.output, node.name, node.inputs[0]
        graph.remove(node)
        if keeps:
            graph.add("GlobalAveragePool", [source], name, output=written)
            continue
        pool = graph.add("GlobalAveragePool", [source], name)
        shape = graph.shape(source)
        if shape is not None:
            graph.shapes[pool.output] = (*shape[:2], *[1] * (rank - 2))
        constant = graph.add_constant(f"{name}/axes", np.arange(2, rank, dtype=np.int64))
        graph.add("Squeeze", [pool.output, constant], f"{name}/Squeeze", output=written)
    graph.prune()


def _means(graph: Graph) -> Iterator[Node]:
    """Yield the means over all spatial axes, of the nodes that `move_to_channels_first` flipped.

    In other nodes the second axis need not be that of the channels: a mean over the last axes may belong to a
    normalization.
    """
    for node in graph.channels_first:
        rank = graph.rank(node.inputs[0]) if node.op == "ReduceMean" and node in graph else None
        axes = constant_axes(graph, node) if rank is not None else None
        if rank is not None and axes is not None and sorted(axis % rank for axis in axes) == list(range(2, rank)):
            yield node


PASS = GraphPass(
    restore_global_average_pools,
    needs="`move_to_channels_first`, which tells where the channels are.",
    holds="No flipped ReduceMean takes the mean over all spatial axes.",
    refuses="Means of nodes that were not flipped: their second axis need not hold channels.",
    denied_by=_means,
)
