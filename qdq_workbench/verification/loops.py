"""Loops that end the process of ONNX Runtime: it moves pairs to what a body reads from the graph around it."""

from __future__ import annotations

from collections.abc import Iterator

from qdq_workbench.onnx_graph.graph import outer_reads
from qdq_workbench.onnx_graph.moved_pairs import moved_over
from qdq_workbench.onnx_graph.qdq_graph import QDQGraph, subgraphs


def loop_differences(graph: QDQGraph) -> Iterator[str]:
    """Yield the loops whose bodies read a dequantized tensor that was moved: ONNX Runtime ends the process there."""
    for node in graph.nodes:
        for body in subgraphs(node):
            for tensor in dict.fromkeys(outer_reads(body)):
                source = _moved_from(graph, tensor)
                if source != tensor and graph.is_dequantized(source):
                    yield f"the body of {node.name!r} reads {tensor!r}, which was dequantized and moved, from outside"


def _moved_from(graph: QDQGraph, tensor: str) -> str:
    """Return the tensor whose pair ONNX Runtime may move to a tensor: one behind which a pair stays is its own."""
    source: str | None = tensor
    while source is not None:
        tensor, node = source, graph.producer(source)
        source = None if node is None else moved_over(node.op_type, node.input, node.output, graph.constant)
    return tensor
