"""Small QDQ graphs made by hand, to plant faults in."""

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper


class FileMaker:
    """Builds an ONNX model node by node; tensors and nodes are named by the caller."""

    def __init__(self, shape=(1, 2, 4, 4)):
        self.nodes, self.constants = [], {}
        self.inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)]

    def constant(self, name, value):
        self.constants[name] = np.asarray(value)
        return name

    def node(self, op, inputs, name, **attributes):
        self.nodes.append(helper.make_node(op, inputs, [name], name=name, **attributes))
        return name

    def quantize(self, tensor, name, scale=0.1, zero=0, dtype=np.uint8, op="QuantizeLinear", **attributes):
        parameters = [
            self.constant(f"{name}_s", np.float32(scale)),
            self.constant(f"{name}_z", np.asarray(zero, dtype)),
        ]
        return self.node(op, [tensor, *parameters], name, **attributes)

    def dequantize(self, tensor, name, **options):
        return self.quantize(tensor, name, op="DequantizeLinear", **options)

    def pair(self, tensor, name, **options):
        return self.dequantize(self.quantize(tensor, f"{name}_q", **options), f"{name}_dq", **options)

    def weight(self, name, shape=(2, 2, 3, 3), axis=0, scale=0.01):
        codes = self.constant(f"{name}_codes", np.arange(np.prod(shape)).reshape(shape).astype(np.int8))
        scales = np.full(shape[axis], scale, np.float32)
        return self.dequantize(codes, name, scale=scales, zero=np.zeros(shape[axis]), dtype=np.int8, axis=axis)

    def bias(self, name, scale=0.001, size=2):
        codes = self.constant(f"{name}_codes", np.arange(size, dtype=np.int32))
        return self.dequantize(codes, name, scale=np.full(size, scale), zero=np.zeros(size), dtype=np.int32, axis=0)

    def conv(self, tensor, name, bias=True):
        inputs = [tensor, self.weight(f"{name}_w"), *([self.bias(f"{name}_b")] if bias else [])]
        return self.node("Conv", inputs, name, pads=[1, 1, 1, 1])

    def model(self, *outputs):
        graph = helper.make_graph(
            self.nodes,
            "made_by_hand",
            self.inputs,
            [helper.make_tensor_value_info(name, TensorProto.FLOAT, ("n", "c", "h", "w")) for name in outputs],
            [numpy_helper.from_array(value, name) for name, value in self.constants.items()],
        )
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def save(model, path):
    """Check and write a model; return its path."""
    onnx.checker.check_model(model)
    onnx.save(model, path)
    return path


def integer_share(kernels, *ops):
    """Return the share of the nodes with these operators, or with any, that run on integers; 1.0 if there is none."""
    chosen = [kernels.counts[op] for op in (ops or kernels.counts) if op in kernels.counts]
    total = sum(count for _, count in chosen)
    return sum(count for count, _ in chosen) / total if total else 1.0
