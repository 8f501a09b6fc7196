"""x * 1 -> x, as in Swish, which arrives as x * sigmoid(1 * x)."""

from __future__ import annotations

import numpy as np

from qdq_workbench.export.passes.contract import GraphPass, nodes_where
from qdq_workbench.export.passes.drop_identities import drop_identities
from qdq_workbench.onnx_graph.graph import Graph, Node


def drop_products_with_one(graph: Graph) -> None:
    """Drop multiplications of floats by a single 1."""
    for node in graph.sorted_nodes():
        factor = _factor(graph, node)
        if factor is not None:
            name, written = node.name, node.output
            graph.remove(node)
            graph.add("Identity", [factor], name, output=written)
    drop_identities(graph)


def _factor(graph: Graph, node: Node) -> str | None:
    """Return the tensor that a node multiplies by a scalar 1; None for other nodes."""
    if node.op != "Mul" or node.domain:
        return None
    for index, tensor in enumerate(node.inputs):
        value = graph.constant(tensor)
        if value is not None and value.ndim == 0 and value.dtype == np.float32 and value == 1:
            return node.inputs[1 - index]
    return None


PASS = GraphPass(
    drop_products_with_one,
    needs="Nothing.",
    holds="No float is multiplied by a constant scalar 1.",
    refuses="Ones with axes, which may broadcast.",
    denied_by=nodes_where(_factor),
)
