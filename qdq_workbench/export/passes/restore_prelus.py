"""A PReLU, which arrives as two ReLUs, a product and a sum, becomes one PRelu."""

from __future__ import annotations

import numpy as np

from qdq_workbench.export.passes.contract import GraphPass, nodes_where
from qdq_workbench.onnx_graph.graph import Graph, Node


def restore_prelus(graph: Graph) -> None:
    """Turn relu(x) - alpha * relu(-x) into PRelu(x, alpha).

    Args:
        graph: The float graph to change.
    """
    for last in graph.sorted_nodes():
        found = _source_and_slope(graph, last)
        if found is None:
            continue
        source, slope = found
        name, written = last.name, last.output
        graph.remove(last)
        graph.add("PRelu", [source, graph.add_constant(f"{name}/slope", slope)], name, output=written)
    graph.prune()


def _source_and_slope(graph: Graph, last: Node) -> tuple[str, np.ndarray] | None:
    """Return the tensor whose PReLU a node writes, and the slopes below 0."""
    if last.op != "Add" or last.domain or len(last.inputs) != 2:
        return None
    for above, below in (last.inputs, last.inputs[::-1]):
        positive, product = graph.producer(above), graph.producer(below)
        if positive is None or positive.op != "Relu" or product is None or product.op != "Mul":
            continue
        source = positive.inputs[0]
        for factor, clipped in (product.inputs, product.inputs[::-1]):
            value, negative = graph.constant(factor), graph.producer(clipped)
            minus = graph.producer(negative.inputs[0]) if negative is not None and negative.op == "Relu" else None
            rank = graph.rank(source)
            if value is None or value.dtype != np.float32 or rank is None or value.ndim > rank:
                continue
            if minus is not None and minus.op == "Neg" and minus.inputs[0] == source:
                return source, -value
    return None


PASS = GraphPass(
    restore_prelus,
    needs="Nothing.",
    holds="No sum of relu(x) and a constant times relu(-x) is left.",
    refuses="Slopes that are computed or quantized, and other types than float32.",
    denied_by=nodes_where(_source_and_slope),
)
