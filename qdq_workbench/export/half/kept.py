"""The nodes that stay in float32, each with its reason: the operator, a constant, a scale or a range."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto

from qdq_workbench.export.half.rounding import constant_fits, scale_fits
from qdq_workbench.graph.half_precision import BOUNDED, KEPT, OUT_OF_RANGE, HalfRequest
from qdq_workbench.graph.operators import CONTRACTIONS, operators_of
from qdq_workbench.onnx_graph.element_types import following, typed_inputs
from qdq_workbench.onnx_graph.graph import Graph, Node
from qdq_workbench.onnx_graph.qdq_graph import DEQUANTIZE, PAIR_OPERATORS
from qdq_workbench.quantizers.blocks import extremes, spread
from qdq_workbench.spec.quantizer_spec import QuantizerSpec

_MEASURES = operators_of("measure")
_FACTORS = frozenset({"Div", "Max", "Min", "Mod", "Mul", "PRelu", "Where"})
_INTEGERS = frozenset({TensorProto.INT32, TensorProto.INT64})

_FIXED = operators_of("cast", "generator") | {"ConstantOfShape"}

_ATTRIBUTE = "its type is an attribute of its own"
_SQUARE = "squares a tensor: values beyond 256 overflow, and small ones vanish"
_NOT_THERE = "the operator does not exist in this type at this opset"
_CONSTANT = "one of its constants overflows, vanishes or loses digits in this type"
_SCALE = (
    "this type would move a scale by more than an eighth of a step at its outermost integer; between pairs it "
    "is INT8 all the same"
)
_TARGET = "integer kernels of this target read float32 scales"
_SHARED = "it shares a weight with a layer in float32"
_INDEX = "an index or a size is computed from it, which must be exact"
_BESIDE = "it combines values that this type may not hold"


class Kept:
    """The rules, applied to one graph.

    Args:
        graph: The finished graph, all its floats in float32.
        types: From `element_types`.
        request: The type, and the reasons of the model.
    """

    def __init__(self, graph: Graph, types: dict[str, int], request: HalfRequest) -> None:
        self._graph = graph
        self._types = types
        self._request = request
        self._unfit = {node: self._why_unfit(node) for node in graph.nodes if node.op == DEQUANTIZE}

    def is_free(self, node: Node) -> bool:
        """Return whether a node allows any float type: Q, DQ, Shape, Size, every Cast but float32 to float32."""
        if node.op == "Cast":
            return TensorProto.FLOAT not in (self._types.get(node.inputs[0]), self._types[node.output]) or (
                self._types.get(node.inputs[0]) != self._types[node.output]
            )
        return node.op in PAIR_OPERATORS or node.op in _MEASURES

    def computes(self, node: Node) -> bool:
        """Return whether a node reads or writes float32 values, and is not free."""
        if self.is_free(node):
            return False
        ends = (*Graph.reads(node), *(tensor for tensor in node.outputs if tensor))
        return any(self._types.get(tensor) == TensorProto.FLOAT for tensor in ends)

    def fits(self, dequantize: Node) -> bool:
        """Return whether the scales of a pair or weight may be in half precision."""
        return not self._unfit.get(dequantize)  # missing are the copies that `to_half` adds of nodes whose scales fit

    def reasons(self) -> dict[Node, str]:
        """Return the nodes that stay in float32, each with its reason."""
        nodes = [node for node in self._graph.sorted_nodes() if self.computes(node)]
        found = {node: reason for node in nodes if (reason := self._why(node))}
        # In this order: the last two spread what the rules before them have kept.
        self._keep_indices(found)
        self._keep_beside(nodes, found)
        self._keep_sharing(found)
        return found

    def _why(self, node: Node) -> str:
        """Return why a node stays in float32 by its operator, constants, scales or layer; "" where it need not."""
        kind = self._request.kind
        if node.op in KEPT:
            return KEPT[node.op]
        # tf2onnx writes Square as a product, which the table of operators does not list.
        if node.op == "Mul" and node.inputs[0] == node.inputs[1]:
            return _SQUARE
        if node.op in _FIXED:
            return _ATTRIBUTE
        found = None if node.domain else following(node.op, self._graph.opset)
        if found is None or f"tensor({kind.name})" not in found.allowed:
            return _NOT_THERE
        inputs = [node.inputs[i] for i in typed_inputs(node, self._graph.opset)]
        if not all(self._constant_fits(node, tensor) for tensor in inputs):
            return _CONSTANT
        if node.op in CONTRACTIONS:
            sources = [self._graph.producer(tensor) for tensor in node.inputs]
            unfit = [self._unfit[source] for source in sources if source in self._unfit]
            if any(unfit):
                return next(reason for reason in unfit if reason)
        return self._request.why_kept(node.name)

    def _constant_fits(self, node: Node, tensor: str) -> bool:
        value = self._graph.constant(tensor)
        if value is None or value.dtype != np.float32:
            return True
        return constant_fits(value, self._request.kind, elementwise=node.op in _FACTORS)

    def _why_unfit(self, node: Node) -> str:
        """Return why the scales of a DequantizeLinear stay in float32; "" where they need not."""
        if not self._request.scales:
            return _TARGET
        scale, codes = self._graph.constant(node.inputs[1]), self._graph.constant(node.inputs[0])
        zero = self._graph.constant(node.inputs[2]) if len(node.inputs) > 2 else None
        # Without constants nothing bounds the error of a rounded scale.
        if scale is None or scale.dtype != np.float32 or (zero is None and codes is None):
            return _SCALE
        axis, block = int(node.get("axis", 1)), int(node.get("block_size", 0))
        farthest = _farthest(codes, zero, scale, QuantizerSpec(axis=axis, block_size=block or None))
        return "" if scale_fits(scale, farthest, self._request.kind) else _SCALE

    def _keep_indices(self, found: dict[Node, str]) -> None:
        """Keep in float32 the nodes that integers are computed from, back to the next pair, convolution or product."""
        graph = self._graph
        pending = [
            node.inputs[0] for node in graph.nodes if node.op == "Cast" and self._types[node.output] in _INTEGERS
        ]
        while pending:
            node = graph.producer(pending.pop())
            if node is not None and self.computes(node) and node.op not in CONTRACTIONS and node not in found:
                found[node] = _INDEX
                pending += node.inputs

    def _keep_beside(self, nodes: list[Node], found: dict[Node, str]) -> None:
        """Keep in float32 the nodes that read values out of range, up to those that bound them or combine them."""
        wild: set[str] = set()
        for node in nodes:
            if node in found and (node.op in OUT_OF_RANGE or found[node] == _SQUARE):
                wild.update(node.outputs)
                continue
            if not wild.intersection(node.inputs):
                continue
            found.setdefault(node, _BESIDE)
            others = [tensor for tensor in node.inputs if tensor not in wild and self._graph.constant(tensor) is None]
            if not others and node.op not in BOUNDED:
                wild.update(node.outputs)

    def _keep_sharing(self, found: dict[Node, str]) -> None:
        """Keep in float32 all readers of an integer weight if one is kept, so that it has one DequantizeLinear."""
        for node in self._graph.nodes:
            if node.op != DEQUANTIZE or self._graph.constant(node.inputs[0]) is None:
                continue
            readers = [reader for reader in self._graph.readers(node.output) if self.computes(reader)]
            if any(reader in found for reader in readers):
                for reader in readers:
                    found.setdefault(reader, _SHARED)


def _farthest(codes: np.ndarray | None, zero: np.ndarray | None, scale: np.ndarray, spec: QuantizerSpec) -> np.ndarray:
    """Return the largest distance of a code from its zero point, per scale; without codes, of any code of the type."""
    wide = np.zeros((), np.int64) if zero is None else zero.astype(np.int64)
    if codes is None:
        limits = np.iinfo(zero.dtype if zero is not None else np.int8)
        return np.maximum(limits.max - wide, wide - limits.min).astype(np.float64)
    if scale.ndim == 0:
        return np.abs(codes.astype(np.int64) - wide).max(initial=0).astype(np.float64)
    around = codes.astype(np.int64) - spread(np.broadcast_to(wide, scale.shape), codes.shape, spec)
    return extremes(np.abs(around), spec)[1].astype(np.float64) if codes.size else np.zeros(scale.shape)
