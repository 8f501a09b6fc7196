"""Whether ONNX Runtime's integer kernels saturate on the processor at hand."""

from __future__ import annotations

import functools

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

_VALUES = 64
_LARGEST_SAFE = 64  # the largest weight for which two products fit into int16: 2 * 255 * 64 < 2 ** 15
SAFE_BITS = 7  # of weights that do not exceed it
#: The session option that selects kernels of ONNX Runtime with exact sums of products.
EXACT_SUMS = "session.x64quantprecision"


@functools.cache
def kernels_saturate() -> bool:
    """Return whether ONNX Runtime's default kernels saturate sums of uint8 by int8 products on this processor.

    They do on x86-64 without VNNI, where an instruction adds two products in 16 bits.
    """
    # The largest products: two of them, 2 * 255 * 127, exceed 16 bits.
    weight = np.full((_VALUES, 1), 127, np.int8)
    graph = helper.make_graph(
        [helper.make_node("MatMulInteger", ["x", "w"], ["y"])],
        "largest_sum",
        [helper.make_tensor_value_info("x", TensorProto.UINT8, [1, _VALUES])],
        [helper.make_tensor_value_info("y", TensorProto.INT32, [1, 1])],
        [numpy_helper.from_array(weight, "w")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    (found,) = session.run(None, {"x": np.full((1, _VALUES), 255, np.uint8)})
    return bool(found.item() != _VALUES * 255 * 127)


def may_saturate(proto: onnx.ModelProto) -> bool:
    """Return whether sums of a file may saturate on this processor: by its default kernels and the file's weights."""
    quantized = {node.input[0] for node in proto.graph.node if node.op_type == "DequantizeLinear"}
    weights = (
        tensor
        for tensor in proto.graph.initializer
        if tensor.name in quantized and tensor.data_type == TensorProto.INT8
    )
    # In 16 bits, because the magnitude of -128 does not fit into int8.
    return kernels_saturate() and any(
        np.abs(numpy_helper.to_array(weight).astype(np.int16)).max(initial=0) > _LARGEST_SAFE for weight in weights
    )
