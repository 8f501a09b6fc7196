"""Only the biases between an output and the pairs in front of it excuse a difference at that output."""

import keras
import numpy as np
import onnx
import pytest
from onnx import numpy_helper

import qdq_workbench as qdq
from qdq_workbench.onnx_graph.batches import run_session
from qdq_workbench.onnx_graph.sessions import make_session
from qdq_workbench.verification.bias_steps import BiasSteps


@pytest.fixture(scope="module")
def proto(tmp_path_factory):
    x = keras.Input((6,), name="x")
    first = keras.layers.Dense(5, bias_initializer="random_normal", name="first")
    last = keras.layers.Dense(3, bias_initializer="random_normal", name="last")
    model = keras.Model(x, last(first(x)))
    last.kernel.assign(0.001 * last.kernel)
    q_model = qdq.quantize_model(model, target="onnxruntime")
    qdq.calibrate(q_model, np.random.default_rng(0).normal(size=(32, 6)).astype("float32"), verbose=False)
    path = tmp_path_factory.mktemp("bias_steps") / "model.onnx"
    qdq.export_onnx(q_model, path)
    return onnx.load(path)


def test_the_step_is_that_of_the_last_bias_although_an_earlier_one_is_coarser(proto):
    constants = {tensor.name: numpy_helper.to_array(tensor) for tensor in proto.graph.initializer}
    last = float(constants["last/bias/scale"].max())
    assert float(constants["first/bias/scale"].max()) > last
    assert BiasSteps(proto).half(proto.graph.output[0].name) == pytest.approx(last / 2, rel=1e-6)


def test_an_output_without_integer_bias_gets_nothing(proto):
    bare = onnx.ModelProto()
    bare.CopyFrom(proto)
    for tensor in bare.graph.initializer:
        if tensor.data_type == onnx.TensorProto.INT32:
            tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor).astype(np.int16), tensor.name))
    assert BiasSteps(bare).half(bare.graph.output[0].name) == 0.0


def test_an_output_that_is_the_same_for_every_sample_verifies(tmp_path):
    """A training that diverged leaves such networks: nothing but the bias arrives, rounded to its step."""
    x = keras.Input((4,), name="x")
    low = keras.initializers.Constant(-9.0)
    hidden = keras.layers.Dense(3, activation="relu", bias_initializer=low, name="dead")(x)
    bias = keras.initializers.Constant([0.02566, 0.01936, -0.04474])
    model = keras.Model(x, keras.layers.Dense(3, bias_initializer=bias, name="head")(hidden))
    q_model = qdq.quantize_model(model, target="onnxruntime")
    data = np.random.default_rng(0).uniform(-1, 1, (8, 4)).astype("float32")
    qdq.calibrate(q_model, data, verbose=False)
    q_model.activation_quantizers[-1].set_range(0.0, 17.0)
    path = tmp_path / "dead.onnx"
    qdq.export_onnx(q_model, path)
    proto = onnx.load(path)
    found = run_session(make_session(proto, optimized=False), {"x": data})["head"]
    apart = np.abs(q_model.predict(data, verbose=0) - found)
    assert 1e-5 < apart.mean() <= BiasSteps(proto).half("head")
    qdq.verify_onnx(path, q_model, data=data).raise_if_failed()


def test_what_a_bias_is_off_by_is_passed_on_by_a_relu_and_not_by_a_sigmoid():
    helper = onnx.helper
    scales = [helper.make_tensor("scale", onnx.TensorProto.FLOAT, [], [0.5])]
    codes = [helper.make_tensor("codes", onnx.TensorProto.INT32, [1], [3])]
    nodes = [
        helper.make_node("DequantizeLinear", ["codes", "scale"], ["bias"]),
        helper.make_node("Add", ["x", "bias"], ["sum"]),
        helper.make_node("Relu", ["sum"], ["relu"]),
        helper.make_node("Sigmoid", ["sum"], ["sigmoid"]),
    ]
    steps = BiasSteps(helper.make_model(helper.make_graph(nodes, "g", [], [], [*scales, *codes])))

    assert [steps.half(name) for name in ("relu", "sigmoid")] == [0.25, 0.25]
    assert [steps.half_passed_on(name) for name in ("relu", "sigmoid")] == [0.25, 0.0]
