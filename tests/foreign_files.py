"""Small QDQ files as other tools write them: nodes without names, newer opsets, branches."""

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from onnxruntime.quantization import CalibrationDataReader


def array(value, name, dtype="float32"):
    return numpy_helper.from_array(np.array(value).astype(onnx.helper.tensor_dtype_to_np_dtype(KINDS[dtype])), name)


KINDS = {
    name: getattr(TensorProto, name.upper())
    for name in ("uint8", "int8", "int4", "uint4", "int16", "int32", "float", "bool")
} | {"float32": TensorProto.FLOAT, "float8": TensorProto.FLOAT8E4M3FN}
SCALES = [array([0.1, 0.2, 0.3, 0.4], "v"), array([0] * 4, "o", "int8")]
ACTIVATION = [array(0.1, "s"), array(128, "z", "uint8")]
PAIR = (
    helper.make_node("QuantizeLinear", ["x", "s", "z"], ["xq"]),
    helper.make_node("DequantizeLinear", ["xq", "s", "z"], ["xd"]),
)
PRODUCT = helper.make_node("MatMul", ["xd", "wd"], ["y"])


def weight(output="wd", **attributes):
    return helper.make_node("DequantizeLinear", ["w", "v", "o"], [output], **attributes)


def values(name, kind=TensorProto.FLOAT, shape=("n", 4)):
    return helper.make_tensor_value_info(name, kind, shape)


def make(nodes, constants, opset=21, inputs=("x",), **options):
    constants = [*constants, array(np.ones((4, 4)), "w", "int8")]
    graph = helper.make_graph(nodes, "g", [values(name) for name in inputs], [values("y")], constants)
    imports = [helper.make_opsetid("", opset), helper.make_opsetid("local", 1)]
    return helper.make_model(graph, opset_imports=imports, ir_version=10, **options)


def branches(scale):
    """An If with a pair of the outer graph's parameters in both branches, which use the same names."""
    nodes = []
    for _ in range(2):
        inside = [
            helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"]),
            helper.make_node("DequantizeLinear", ["q", "s", "z"], ["d"]),
        ]
        nodes.append(helper.make_graph(inside, "branch", [], [values("d")]))
    choice = helper.make_node("If", ["c"], ["y"], then_branch=nodes[0], else_branch=nodes[1])
    return [choice], [array(scale, "s"), array(128, "z", "uint8"), array(1, "c", "bool")]


class Batches(CalibrationDataReader):
    """Feeds one batch to ONNX Runtime's quantizer."""

    def __init__(self, data):
        self._batches = iter([{"image": data}])

    def get_next(self):
        return next(self._batches, None)
