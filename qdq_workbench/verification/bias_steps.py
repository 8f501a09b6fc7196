"""The rounding error of the int32 biases before a tensor; only the file rounds biases, the Keras model does not."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import onnx

from qdq_workbench.verification.lowered import HELPERS

# Operators that pass on what a bias is off by and no more; behind a sigmoid, say, it may be many times smaller.
_PASSING = HELPERS | {"Add", "Clip", "Conv", "ConvTranspose", "DequantizeLinear", "Gemm", "MatMul", "MaxPool", "Relu"}


class BiasSteps:
    """The scales of the int32 biases in a file.

    Args:
        proto: The file.
    """

    def __init__(self, proto: onnx.ModelProto) -> None:
        self._constants = {tensor.name: tensor for tensor in proto.graph.initializer}
        self._producers = {name: node for node in proto.graph.node for name in node.output}
        self._parts: dict[str, list[onnx.NodeProto]] = {}

    def half(self, tensor: str) -> float:
        """Return half of the largest scale of the int32 biases between a tensor and the pairs before it.

        An int32 bias has the scale `s_x * s_w`, so rounding moves the result of its layer by at most half of that:
        negligible with 8-bit weights, visible with 4-bit ones.
        """
        return self._half(self._last_part(tensor))

    def half_passed_on(self, tensor: str) -> float:
        """Return `half` of a tensor that differs by as much as its bias; 0 behind other functions."""
        nodes = self._last_part(tensor)
        return self._half(nodes) if all(node.op_type in _PASSING for node in nodes) else 0.0

    def _half(self, nodes: Iterable[onnx.NodeProto]) -> float:
        steps = [0.0]
        for node in nodes:
            codes = self._constants.get(node.input[0]) if node.op_type == "DequantizeLinear" else None
            if codes is not None and codes.data_type == onnx.TensorProto.INT32:
                steps.append(float(onnx.numpy_helper.to_array(self._constants[node.input[1]]).max(initial=0.0)))
        return max(steps) / 2.0

    def _last_part(self, tensor: str) -> list[onnx.NodeProto]:
        """Return the nodes of `_walk`, found once per tensor."""
        if tensor not in self._parts:
            self._parts[tensor] = list(self._walk(tensor))
        return self._parts[tensor]

    def _walk(self, tensor: str) -> Iterator[onnx.NodeProto]:
        """Yield the nodes from a tensor back to the nearest DequantizeLinear nodes, these included."""
        waiting, seen = [tensor], set()
        while waiting:
            name = waiting.pop()
            if name in seen or name not in self._producers:
                continue
            seen.add(name)
            node = self._producers[name]
            yield node
            if node.op_type != "DequantizeLinear":
                waiting.extend(node.input)
