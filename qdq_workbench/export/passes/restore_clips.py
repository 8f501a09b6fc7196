"""Min and Max with constants become one Clip, which runtimes fuse with the operation before it."""

from __future__ import annotations

import numpy as np

from qdq_workbench.export.passes.contract import GraphPass, nodes_where
from qdq_workbench.onnx_graph.graph import Graph, Node


def restore_clips(graph: Graph) -> None:
    """Turn Max(Min(x, high), low), the converted form of a ReLU with a maximum, into Clip(x, low, high)."""
    for outer in graph.sorted_nodes():
        found = _limits(graph, outer)
        if found is None:
            continue
        inner, low, high = found
        source = _other(graph, inner)
        relu = graph.producer(source)
        # A Clip from 0 on includes the ReLU in front of it.
        if relu is not None and relu.op == "Relu" and low == 0.0 and graph.has_one_reader(relu.output):
            source = relu.inputs[0]
        limits = [
            graph.add_constant(f"{outer.name}/{end}", np.array(value)) for end, value in (("min", low), ("max", high))
        ]
        name, written = outer.name, outer.output
        graph.remove(outer)
        graph.add("Clip", [source, *limits], name, output=written)
    graph.prune()


def _bound(graph: Graph, node: Node, operator: str) -> np.float32 | None:
    """Return the constant number of a Min or Max of a tensor and a number; None for other nodes."""
    if node.op != operator or node.domain or len(node.inputs) != 2:
        return None
    values = [graph.constant(tensor) for tensor in node.inputs]
    numbers = [value for value in values if value is not None and value.size == 1 and value.dtype == np.float32]
    return np.float32(numbers[0].reshape(-1)[0]) if len(numbers) == 1 and values.count(None) == 1 else None


def _other(graph: Graph, node: Node) -> str:
    return next(tensor for tensor in node.inputs if graph.constant(tensor) is None)


def _limits(graph: Graph, outer: Node) -> tuple[Node, np.float32, np.float32] | None:
    """Return the Min whose only reader is this Max, and the two limits."""
    low = _bound(graph, outer, "Max")
    inner = None if low is None else graph.producer(_other(graph, outer))
    high = _bound(graph, inner, "Min") if inner is not None else None
    if inner is None or low is None or high is None or high < low or not graph.has_one_reader(inner.output):
        return None
    return inner, low, high


PASS = GraphPass(
    restore_clips,
    needs="Nothing.",
    holds="No Max with a constant is the only reader of a Min with a constant that is not below it.",
    refuses="Limits with more than one element, or in the wrong order.",
    denied_by=nodes_where(_limits),
)
