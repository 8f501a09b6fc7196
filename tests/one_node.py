"""One ONNX node, run by ONNX Runtime."""

import numpy as np
import onnx
import onnxruntime


def run_node(op, inputs, **attributes):
    """Run one ONNX node in ONNX Runtime, without optimisations."""
    names = [f"i{index}" for index in range(len(inputs))]
    infos = [
        onnx.helper.make_tensor_value_info(name, onnx.helper.np_dtype_to_tensor_dtype(value.dtype), value.shape)
        for name, value in zip(names, inputs, strict=True)
    ]
    out_type = inputs[2].dtype if op == "QuantizeLinear" else np.dtype(np.float32)
    out = onnx.helper.make_tensor_value_info("y", onnx.helper.np_dtype_to_tensor_dtype(out_type), None)
    graph = onnx.helper.make_graph([onnx.helper.make_node(op, names, ["y"], **attributes)], "one", infos, [out])
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 21)], ir_version=10)
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return session.run(None, dict(zip(names, inputs, strict=True)))[0]
