"""A Clip in front of a product with a float weight, where ONNX Runtime would quantize that weight itself.

When it loads a file, ONNX Runtime (1.32, `weight_bias_quantization.cc`) quantizes a float weight of a Conv,
ConvTranspose or Gemm to int8 with one scale in all, if the node reads a DequantizeLinear and its result, after ReLUs
and Clips, is read by one QuantizeLinear alone. A layer that a plan leaves in float would thus be quantized all the
same. It does so only if it finds the pair directly in front of the node, so that a Clip to the limits of the pair,
which changes no value, prevents it.

An int32 bias would prevent it, too, but excludes the float kernels with blocked layouts: with one of its inner
convolutions in float, ResNet-8 took 183 to 214 us with such a bias, 161 to 183 us with the Clip, and 158 to 178 us
with the optimizer disabled (one thread).
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from qdq_workbench.export.passes.contract import GraphPass
from qdq_workbench.export.passes.pair_clips import insert_clip, pair_before
from qdq_workbench.graph.operators import CLIPS, PROPAGATING, WEIGHTED, operators_of
from qdq_workbench.onnx_graph.graph import Graph, Node

_NORMALIZATION = "BatchNormalization"
_MOVING = operators_of("movement")
# What ONNX Runtime may fold into a float weight or bias before it looks for such weights.
_FOLDED = operators_of("arithmetic") | {_NORMALIZATION}


def keep_weights_in_float(graph: Graph) -> None:
    """Insert a Clip in front of every product whose float weight ONNX Runtime would quantize."""
    for node, pair in list(_quantized_by_runtime(graph)):
        insert_clip(graph, node, pair)


def _quantized_by_runtime(graph: Graph) -> Iterator[tuple[Node, Node]]:
    """Yield the products whose float weights ONNX Runtime would quantize, with the DequantizeLinear before each."""
    for node in graph.sorted_nodes():
        if len(node.inputs) < 2 or not _is_float_constant(graph, node.inputs[1]) or not _may_be_quantized(graph, node):
            continue
        pair = pair_before(graph, node)
        if pair is not None:
            yield node, pair


def _is_float_constant(graph: Graph, tensor: str) -> bool:
    """Return whether a tensor is a float32 constant, or moved from one: ONNX Runtime computes such a tensor first."""
    while (moving := graph.producer(tensor)) is not None and moving.op in _MOVING:
        if any(graph.constant(other) is None for other in moving.inputs[1:] if other):
            return False
        tensor = moving.inputs[0]
    values = graph.constant(tensor)
    return values is not None and values.dtype == np.float32


def _may_be_quantized(graph: Graph, node: Node) -> bool:
    """Return whether a node is, or becomes, of a kind whose float weight is quantized, and a pair stands behind it."""
    if node.domain or node.op not in WEIGHTED:
        return False
    if len(node.inputs) > 2 and node.inputs[2] and not _is_float_constant(graph, node.inputs[2]):
        return False
    passed = _passed_before_pair(graph, node.output)
    # A MatMul in front of a normalization becomes a Gemm.
    return passed is not None and (node.op != "MatMul" or _NORMALIZATION in passed)


def _passed_before_pair(graph: Graph, tensor: str) -> list[str] | None:
    """Return the operators up to the QuantizeLinear that alone reads a tensor behind them; None without one."""
    passed: list[str] = []
    while graph.has_one_reader(tensor):
        reader = graph.readers(tensor)[0]
        if reader.op == "QuantizeLinear":
            return passed
        plain = reader.op in CLIPS or reader.op in PROPAGATING
        if not plain and not (reader.op in _FOLDED and _is_constant_beside(graph, reader, tensor)):
            return None
        passed.append(reader.op)
        tensor = reader.output
    return None


def _is_constant_beside(graph: Graph, node: Node, tensor: str) -> bool:
    others = [other for other in node.inputs if other != tensor]
    return len(others) == len(node.inputs) - 1 and all(graph.constant(other) is not None for other in others)


PASS = GraphPass(
    keep_weights_in_float,
    needs="Biases folded; pairs and weights joined; the precision of every product final.",
    holds="No Conv, ConvTranspose or Gemm with a constant float32 weight reads a pair while one pair alone reads it.",
    refuses="Weights in half precision, and computed ones, which ONNX Runtime does not quantize.",
    denied_by=lambda graph: (node for node, _ in _quantized_by_runtime(graph)),
)
