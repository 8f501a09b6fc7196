"""An ONNX graph with the questions that linting, importing and comparing ask about its Q/DQ nodes."""

from __future__ import annotations

import functools

import numpy as np
import onnx
from onnx import helper, numpy_helper

QUANTIZE, DEQUANTIZE = "QuantizeLinear", "DequantizeLinear"
# Operations that only move or choose values: they run on integers as they are.
MOVES = frozenset(
    {
        *("Reshape", "Transpose", "Squeeze", "Unsqueeze", "Flatten", "Slice", "Gather", "Identity", "Expand", "Split"),
        *("MaxPool", "GlobalMaxPool", "Pad", "Tile", "DepthToSpace", "SpaceToDepth"),
    }
)
WEIGHTED = frozenset({"Conv", "ConvTranspose", "Gemm", "MatMul"})


class QDQGraph:
    """A read-only index of a model's main graph.

    Args:
        model: The model.
    """

    def __init__(self, model: onnx.ModelProto) -> None:
        self.model = model
        self.nodes = list(model.graph.node)
        self._tensors = {tensor.name: tensor for tensor in model.graph.initializer}
        for node in self.nodes:
            if node.op_type == "Constant" and node.attribute and node.attribute[0].name == "value":
                self._tensors[node.output[0]] = node.attribute[0].t
        self.outputs = [value.name for value in model.graph.output]
        self.inputs = [value.name for value in model.graph.input if value.name not in self._tensors]
        self._producers = {output: node for node in self.nodes for output in node.output}
        self._readers: dict[str, list[onnx.NodeProto]] = {}
        for node in self.nodes:
            for tensor in dict.fromkeys(node.input):
                self._readers.setdefault(tensor, []).append(node)

    def is_constant(self, tensor: str) -> bool:
        """Return whether a tensor is an initializer or the value of a Constant node."""
        return tensor in self._tensors

    def constant(self, tensor: str) -> np.ndarray | None:
        """Return a constant's value, None for other tensors."""
        return numpy_helper.to_array(self._tensors[tensor]) if tensor in self._tensors else None

    def producer(self, tensor: str) -> onnx.NodeProto | None:
        """Return the node that writes a tensor; None for inputs and constants."""
        return self._producers.get(tensor)

    def readers(self, tensor: str) -> list[onnx.NodeProto]:
        """Return the nodes that read a tensor, each once."""
        return self._readers.get(tensor, [])

    def parameters(self, node: onnx.NodeProto) -> tuple[np.ndarray, np.ndarray] | None:
        """Return scale and zero point of a Q or DQ node; None where they are computed."""
        scale = self.constant(node.input[1])
        if scale is None:
            return None
        if len(node.input) < 3 or not node.input[2]:
            return scale, np.zeros(scale.shape, np.uint8)
        zero = self.constant(node.input[2])
        return None if zero is None else (scale, zero)

    def quantizer_of(self, tensor: str) -> onnx.NodeProto | None:
        """Return the Q or DQ node whose parameters a tensor was dequantized with, through moves of data."""
        node = self.producer(tensor)
        while node is not None and node.op_type in MOVES:
            node = self.producer(node.input[0])
        return node if node is not None and node.op_type == DEQUANTIZE else None

    def is_dequantized(self, tensor: str) -> bool:
        """Return whether a tensor comes straight out of a DequantizeLinear."""
        node = self.producer(tensor)
        return node is not None and node.op_type == DEQUANTIZE

    @functools.cached_property
    def data_nodes(self) -> list[onnx.NodeProto]:
        """The nodes that compute on activations: no Q, no DQ, no Constant."""
        return [node for node in self.nodes if node.op_type not in (QUANTIZE, DEQUANTIZE, "Constant")]


def attribute(node: onnx.NodeProto, name: str, default: int) -> int:
    """Return an integer attribute of a node.

    Args:
        node: The node.
        name: The attribute.
        default: Its value where the node does not have it.
    """
    return next((int(helper.get_attribute_value(item)) for item in node.attribute if item.name == name), default)
