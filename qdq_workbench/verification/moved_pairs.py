"""Pairs that ONNX Runtime may move before an output: it moves QuantizeLinear up through nodes that only move data."""

from __future__ import annotations

import onnx

from qdq_workbench.graph.operators import PROPAGATING
from qdq_workbench.onnx_graph.qdq_graph import QDQGraph


def pairs_that_reach(proto: onnx.ModelProto, output: str) -> list[str]:
    """Return the names of the pairs with only data movement between their source and an output of a file."""
    graph = QDQGraph(proto)
    # A Q behind another reader of the tensor that the output is moved from may move up to that tensor.
    found, todo = [], [graph.origin(output, PROPAGATING)]
    while todo:
        for node in graph.readers(todo.pop()):
            if node.op_type == "QuantizeLinear":
                found.append(node.name.removesuffix("/QuantizeLinear"))
            elif node.op_type in PROPAGATING:
                todo.append(node.output[0])
    return found
