"""Pairs that ONNX Runtime may move before an output: it moves QuantizeLinear up through nodes that only move data."""

from __future__ import annotations

import onnx

# ONNX Runtime 1.31, qdq_propagation.cc.
_MOVEMENTS = frozenset({"MaxPool", "Reshape", "Slice", "Squeeze", "Transpose", "Unsqueeze"})


def pairs_that_reach(proto: onnx.ModelProto, output: str) -> list[str]:
    """Return the names of the pairs with only data movement between their source and an output of a file."""
    producers = {tensor: node for node in proto.graph.node for tensor in node.output}
    readers: dict[str, list[onnx.NodeProto]] = {}
    for node in proto.graph.node:
        for tensor in node.input:
            readers.setdefault(tensor, []).append(node)
    # A Q behind another reader of the tensor that the output is moved from may move up to that tensor.
    start = output
    while start in producers and producers[start].op_type in _MOVEMENTS:
        start = producers[start].input[0]
    found, todo = [], [start]
    while todo:
        for node in readers.get(todo.pop(), []):
            if node.op_type == "QuantizeLinear":
                found.append(node.name.removesuffix("/QuantizeLinear"))
            elif node.op_type in _MOVEMENTS:
                todo.append(node.output[0])
    return found
