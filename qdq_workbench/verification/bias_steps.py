"""The rounding error of the int32 biases before an output; only the file rounds biases, the Keras model does not."""

from __future__ import annotations

from collections.abc import Iterator

import onnx


def half_bias_step(proto: onnx.ModelProto, output: str) -> float:
    """Return half of the largest scale of the int32 biases between an output and the pairs before it.

    An int32 bias has the scale `s_x * s_w`, so rounding moves the result of its layer by at most half of that:
    negligible with 8-bit weights, visible with 4-bit ones.
    """
    constants = {tensor.name: tensor for tensor in proto.graph.initializer}
    steps = [0.0]
    for node in _last_part(proto, output):
        codes = constants.get(node.input[0]) if node.op_type == "DequantizeLinear" else None
        if codes is not None and codes.data_type == onnx.TensorProto.INT32:
            steps.append(float(onnx.numpy_helper.to_array(constants[node.input[1]]).max(initial=0.0)))
    return max(steps) / 2.0


def _last_part(proto: onnx.ModelProto, output: str) -> Iterator[onnx.NodeProto]:
    """Yield the nodes from an output back to the nearest DequantizeLinear nodes, these included."""
    producers = {name: node for node in proto.graph.node for name in node.output}
    waiting, seen = [output], set()
    while waiting:
        name = waiting.pop()
        if name in seen or name not in producers:
            continue
        seen.add(name)
        yield producers[name]
        if producers[name].op_type != "DequantizeLinear":
            waiting.extend(producers[name].input)
