"""Whether ONNX Runtime truncates float16 values where a QuantizeLinear is to round them."""

from __future__ import annotations

import functools

import numpy as np
import onnxruntime
from onnx import TensorProto, helper, numpy_helper


@functools.cache
def halves_are_truncated() -> bool:
    """Return whether ONNX Runtime's CPU kernel truncates x / scale in float16, as all releases before 1.30 do."""
    graph = helper.make_graph(
        [helper.make_node("QuantizeLinear", ["x", "scale", "zero"], ["y"])],
        "three_quarters",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT16, [1])],
        [helper.make_tensor_value_info("y", TensorProto.INT8, [1])],
        [
            numpy_helper.from_array(np.array(1, np.float16), "scale"),
            numpy_helper.from_array(np.array(0, np.int8), "zero"),
        ],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=9)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    (found,) = session.run(None, {"x": np.array([0.75], np.float16)})
    return int(found.item()) == 0
