"""A read-only index of an ONNX graph and its Q/DQ nodes, for linting, importing and comparing."""

from __future__ import annotations

import re
from collections import ChainMap
from collections.abc import Iterator

import numpy as np
import onnx
from onnx import helper, numpy_helper

from qdq_workbench.graph.operators import MOVES, operators_of

QUANTIZE, DEQUANTIZE = "QuantizeLinear", "DequantizeLinear"
PAIR_OPERATORS = operators_of("pair")
NARROWING = "/Clip"  # suffix of the node that clips to the grid of a pair, where it does not fill its integer type
IN_FLOAT = "/in_float"  # suffix of the Clip to the limits of a pair in front of an operator that stays in float
# QLinearConv, QGemm, QOrderedMatMul, ConvInteger, MatMulIntegerToFloat, DynamicQuantizeLinear: the standard's and ONNX
# Runtime's operations on integers all carry one of these words.
_ON_INTEGERS = re.compile(r"Q[A-Z]\w*|\w*Integer(ToFloat)?|DynamicQuantize\w*")
_RUNNING_NUMBER = re.compile(r"__\d+$")  # by tf2onnx, which keeps names apart
_CONSTANTS = {
    "value_float": np.float32,
    "value_floats": np.float32,
    "value_int": np.int64,
    "value_ints": np.int64,
}


def without_running_number(name: str) -> str:
    """Return the name of a node without the number that tf2onnx has appended."""
    return _RUNNING_NUMBER.sub("", name)


def keeps_in_float(node: onnx.NodeProto) -> bool:
    """Return whether a node is a Clip, changing no value, that keeps what reads it in float in ONNX Runtime."""
    return node.op_type == "Clip" and without_running_number(node.name).endswith(IN_FLOAT)


class QDQGraph:
    """A read-only index of a graph. The graph of a branch or a loop's body sees the tensors of those around it.

    Args:
        model: The model.
        graph: One of its graphs; None for the main graph.
        outer: The graph around it; None for the main graph.
    """

    def __init__(
        self, model: onnx.ModelProto, graph: onnx.GraphProto | None = None, outer: QDQGraph | None = None
    ) -> None:
        graph = model.graph if graph is None else graph
        self.nodes = list(graph.node)
        self.is_inner = outer is not None
        self.tensors: ChainMap[str, onnx.TensorProto] = ChainMap() if outer is None else outer.tensors.new_child()
        self.producers: ChainMap[str, onnx.NodeProto | None] = (
            ChainMap() if outer is None else outer.producers.new_child()
        )
        self.read_by: ChainMap[str, list[onnx.NodeProto]] = ChainMap() if outer is None else outer.read_by.new_child()
        self.tensors.update({tensor.name: tensor for tensor in graph.initializer})
        self.outputs = [value.name for value in graph.output]
        self.inputs = [value.name for value in graph.input if value.name not in self.tensors.maps[0]]
        self.model_inputs: list[str] = self.inputs if outer is None else outer.model_inputs
        self._index([*self.tensors.maps[0], *self.inputs])
        self.inner = [QDQGraph(model, part, self) for node in self.nodes for part in subgraphs(node)]

    def _index(self, given: list[str]) -> None:
        """Fill the maps; the readers of a tensor, also those in inner graphs, are listed in the graph that has it."""
        self.producers.update(dict.fromkeys(given))
        for node in self.nodes:
            self.producers.update({output: node for output in node.output if output})
            self._keep_constant(node)
        self.read_by.update({tensor: [] for tensor in self.producers.maps[0]})
        for node in self.nodes:
            for tensor in dict.fromkeys(node.input):
                self.read_by.setdefault(tensor, [])
                self.read_by[tensor].append(node)

    def _keep_constant(self, node: onnx.NodeProto) -> None:
        if node.op_type == "Identity" and node.input[0] in self.tensors:
            self.tensors[node.output[0]] = self.tensors[node.input[0]]
        for item in node.attribute if node.op_type == "Constant" else ():
            if item.name == "value":
                self.tensors[node.output[0]] = item.t
            elif item.name in _CONSTANTS:
                value = np.array(helper.get_attribute_value(item), _CONSTANTS[item.name])
                self.tensors[node.output[0]] = numpy_helper.from_array(value, node.output[0])

    def all_graphs(self) -> Iterator[QDQGraph]:
        """Yield this graph and all graphs inside it."""
        yield self
        for graph in self.inner:
            yield from graph.all_graphs()

    def is_constant(self, tensor: str) -> bool:
        """Return whether a tensor is an initializer, the value of a Constant node, or an Identity of one."""
        return tensor in self.tensors

    def constant(self, tensor: str) -> np.ndarray | None:
        """Return a constant's value, None for other tensors."""
        return numpy_helper.to_array(self.tensors[tensor]) if tensor in self.tensors else None

    def producer(self, tensor: str) -> onnx.NodeProto | None:
        """Return the node that writes a tensor; None for inputs and initializers."""
        return self.producers.get(tensor)

    def readers(self, tensor: str) -> list[onnx.NodeProto]:
        """Return the nodes that read a tensor, each once, those of inner graphs too."""
        return self.read_by.get(tensor, [])

    def parameters(self, node: onnx.NodeProto) -> tuple[np.ndarray, np.ndarray] | None:
        """Return scale and zero point of a Q or DQ node; None where they are computed."""
        scale = self.constant(node.input[1])
        if scale is None:
            return None
        if len(node.input) < 3 or not node.input[2]:
            return scale, np.zeros(scale.shape, self._integer_type(node))
        zero = self.constant(node.input[2])
        return None if zero is None else (scale, zero)

    def _integer_type(self, node: onnx.NodeProto) -> np.dtype:
        """Return the integer type of a Q or DQ node without a zero point."""
        if node.op_type == QUANTIZE:
            code = attribute(node, "output_dtype", 0) or onnx.TensorProto.UINT8
            return np.dtype(helper.tensor_dtype_to_np_dtype(code))
        codes = self.constant(node.input[0])
        if codes is not None:
            return codes.dtype
        source = self.producer(self.origin(node.input[0]))
        found = None if source is None or source.op_type != QUANTIZE else self.parameters(source)
        return np.dtype(np.uint8) if found is None else found[1].dtype

    def clipped_pair(self, clip: onnx.NodeProto) -> onnx.NodeProto | None:
        """Return the QuantizeLinear behind a Clip of one of our pairs; None for other nodes.

        A grid of fewer bits lies in a wider integer type, so that the Clip before it limits the integers.
        """
        if clip.op_type != "Clip" or not clip.name.endswith(NARROWING):
            return None
        wanted = f"{clip.name.removesuffix(NARROWING)}/{QUANTIZE}"
        behind = self.readers(clip.output[0])
        return next((node for node in behind if node.op_type == QUANTIZE and node.name == wanted), None)

    def clipped_limits(self, clip: onnx.NodeProto, scale: float, zero: int) -> tuple[int, int] | None:
        """Return the integers at the bounds of a Clip; None where a bound is computed or lies at no integer."""
        bounds = [self.constant(name) for name in clip.input[1:3]]
        places = [bound.item() / scale for bound in bounds if bound is not None and bound.size == 1 and scale > 0]
        if len(places) < 2 or not np.isfinite(places).all():
            return None
        return round(places[0]) + zero, round(places[1]) + zero

    def origin(self, tensor: str, through: frozenset[str] = MOVES) -> str:
        """Return the tensor that a tensor was moved from, by any number of the operations in `through`."""
        node = self.producer(tensor)
        while node is not None and node.op_type in through and not self.is_constant(tensor):
            tensor = node.input[0]
            node = self.producer(tensor)
        return tensor

    def dequantize_of(self, tensor: str) -> onnx.NodeProto | None:
        """Return the DequantizeLinear that a tensor comes from, also through movements of data; None without one."""
        node = self.producer(self.origin(tensor))
        return node if node is not None and node.op_type == DEQUANTIZE else None

    def is_dequantized(self, tensor: str) -> bool:
        """Return whether a DequantizeLinear writes a tensor."""
        node = self.producer(tensor)
        return node is not None and node.op_type == DEQUANTIZE

    def stored(self, dequantize: onnx.NodeProto) -> np.ndarray | None:
        """Return the constant that a DQ reads: its integers, or the floats that a Q before it reads; else None."""
        source = self.producer(dequantize.input[0])
        floats = source.input[0] if source is not None and source.op_type == QUANTIZE else ""
        codes = self.constant(dequantize.input[0])
        return self.constant(floats) if codes is None else codes


def attribute(node: onnx.NodeProto, name: str, default: int) -> int:
    """Return an integer attribute of a node, `default` if it is not set."""
    return next((int(helper.get_attribute_value(item)) for item in node.attribute if item.name == name), default)


def subgraphs(node: onnx.NodeProto) -> Iterator[onnx.GraphProto]:
    """Yield the branches of an If, or the body of a Loop or Scan."""
    for item in node.attribute:
        if item.type == onnx.AttributeProto.GRAPH:
            yield item.g
        yield from item.graphs


def has_negative_scales(graph: QDQGraph, node: onnx.NodeProto) -> bool:
    """Return whether a node dequantizes a constant with zero point 0 and some negative scales."""
    if node.op_type != DEQUANTIZE or not graph.is_constant(node.input[0]):
        return False
    found = graph.parameters(node)
    return found is not None and bool(np.any(found[0] < 0)) and not np.any(found[1].astype(np.int64))


def name_of(node: onnx.NodeProto) -> str:
    """Return the name of a node, or of its first output, because the names of nodes are optional."""
    return node.name or next((output for output in node.output if output), node.op_type)


def computes_on_integers(node: onnx.NodeProto) -> bool:
    """Return whether an operation takes integers and their scales as inputs, as in the QOperator format."""
    return _ON_INTEGERS.fullmatch(node.op_type) is not None


def type_name(dtype: np.dtype) -> str:
    """Return the name of a type, such as "uint4"; onnx before 1.19 has types below 8 bits as a field of a dtype."""
    return dtype.names[0] if dtype.names else str(dtype)


def integer_limits(name: str) -> tuple[int, int] | None:
    """Return the lowest and highest integer of a type name; None for types other than integers, such as float8."""
    found = re.fullmatch(r"(u?)int(\d+)", name)
    if found is None:
        return None
    bits = int(found[2])
    return (0, 2**bits - 1) if found[1] else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
