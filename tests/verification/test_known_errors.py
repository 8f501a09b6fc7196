"""Errors that a correct file may have excuse a difference as far as they reach, and no further."""

import keras
import numpy as np
import onnx
import pytest
from keras import layers
from onnx import helper, numpy_helper

import qdq_workbench as qdq
from qdq_workbench.onnx_graph.batches import run_session
from qdq_workbench.onnx_graph.sessions import make_session
from qdq_workbench.verification.known_errors import SPACINGS, KnownError, KnownErrors

FLOAT, INT32 = onnx.TensorProto.FLOAT, onnx.TensorProto.INT32


def without_errors(monkeypatch):
    monkeypatch.setattr(KnownErrors, "of", lambda *_: KnownError())


def failed(path, q_model, data):
    return [check.name for check in qdq.verify_onnx(path, q_model, data).checks if not check.passed]


@pytest.fixture(scope="module")
def two_layers(tmp_path_factory):
    x = keras.Input((6,), name="x")
    first = layers.Dense(5, bias_initializer="random_normal", name="first")
    last = layers.Dense(3, bias_initializer="random_normal", name="last")
    model = keras.Model(x, last(first(x)))
    last.kernel.assign(0.001 * last.kernel)
    data = np.random.default_rng(0).normal(size=(32, 6)).astype("float32")
    q_model = qdq.quantize_model(model, target="onnxruntime")
    qdq.calibrate(q_model, data, verbose=False)
    path = tmp_path_factory.mktemp("known_errors") / "model.onnx"
    qdq.export_onnx(q_model, path)
    return onnx.load(path), {"x": data}


def test_the_step_is_that_of_the_last_bias_although_an_earlier_one_is_coarser(two_layers):
    proto, inputs = two_layers
    constants = {tensor.name: numpy_helper.to_array(tensor) for tensor in proto.graph.initializer}
    last = float(constants["last/bias/scale"].max())
    assert float(constants["first/bias/scale"].max()) > 2 * last
    # Near to the float32 spacing of the output.
    assert KnownErrors(proto, inputs).of(proto.graph.output[0].name).biases == pytest.approx(last / 2, rel=0.1)


def test_an_output_without_integer_bias_gets_nothing(two_layers):
    proto, inputs = two_layers
    bare = onnx.ModelProto()
    bare.CopyFrom(proto)
    constants = {tensor.name: tensor for tensor in bare.graph.initializer}
    for node in bare.graph.node:
        codes = constants.get(node.input[0])
        if node.op_type == "DequantizeLinear" and codes is not None and codes.data_type == INT32:
            values = numpy_helper.to_array(codes) * numpy_helper.to_array(constants[node.input[1]])
            node.CopyFrom(helper.make_node("Identity", [f"{node.name}/float"], list(node.output)))
            bare.graph.initializer.append(numpy_helper.from_array(values.astype(np.float32), node.input[0]))
    assert KnownErrors(bare, inputs).of(bare.graph.output[0].name).biases == 0.0


def test_an_output_that_is_the_same_for_every_sample_verifies(tmp_path):
    """A training that diverged leaves such networks: nothing but the bias arrives, rounded to its step."""
    x = keras.Input((4,), name="x")
    low = keras.initializers.Constant(-9.0)
    hidden = layers.Dense(3, activation="relu", bias_initializer=low, name="dead")(x)
    bias = keras.initializers.Constant([0.02566, 0.01936, -0.04474])
    model = keras.Model(x, layers.Dense(3, bias_initializer=bias, name="head")(hidden))
    q_model = qdq.quantize_model(model, target="onnxruntime")
    data = np.random.default_rng(0).uniform(-1, 1, (8, 4)).astype("float32")
    qdq.calibrate(q_model, data, verbose=False)
    q_model.activation_quantizers[-1].set_range(0.0, 17.0)
    path = tmp_path / "dead.onnx"
    qdq.export_onnx(q_model, path)
    proto = onnx.load(path)
    found = run_session(make_session(proto, optimized=False), {"x": data})["head"]
    apart = np.abs(q_model.predict(data, verbose=0) - found)
    assert 1e-5 < apart.mean() <= KnownErrors(proto, {"x": data}).of("head").biases
    qdq.verify_onnx(path, q_model, data=data).raise_if_failed()


def file_of(*nodes, **constants):
    """A file from `x`, four values per sample, to `y`, with int32 codes 3 and 5 of the bias and its scales."""
    held = {"codes": np.array([3, 5, 0, 0], np.int32), "scale": np.array(0.5, np.float32), **constants}
    tensors = [numpy_helper.from_array(np.asarray(values), name) for name, values in held.items()]
    ends = [helper.make_tensor_value_info(name, FLOAT, ["n", 4]) for name in "xy"]
    made = [helper.make_node(op, inputs, outputs, **settings) for op, inputs, outputs, settings in nodes]
    graph = helper.make_graph(made, "g", ends[:1], ends[1:], tensors)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 9
    onnx.checker.check_model(model)
    return model


BIASED = [("DequantizeLinear", ["codes", "scale"], ["bias"], {}), ("Add", ["x", "bias"], ["sum"], {})]
LINES = np.linspace(-3, 3, 24, dtype=np.float32).reshape(6, 4)


@pytest.mark.parametrize(
    ("behind", "low", "high"),
    [
        ([("Relu", ["sum"], ["y"], {})], 0.25, 0.25),
        ([("Sigmoid", ["sum"], ["y"], {})], 0.05, 0.0625),
        ([("Sigmoid", ["sum"], ["gate"], {}), ("Mul", ["sum", "gate"], ["y"], {})], 0.26, 0.28),
        ([("Mul", ["sum", "factor"], ["y"], {})], 25.0, 25.0),
        # All biases moved together, this difference would not change.
        ([("Split", ["sum"], ["a", "b"], {"axis": 1}), ("Sub", ["a", "b"], ["c"], {}),
          ("Concat", ["c", "c"], ["y"], {"axis": 1})], 0.5, 0.5),
    ],
    ids=["relu", "sigmoid", "silu", "product", "difference"],
)  # fmt: skip
def test_the_rounding_of_a_bias_arrives_as_functions_pass_it_on(behind, low, high):
    proto = file_of(*BIASED, *behind, factor=np.float32(100.0))
    found = KnownErrors(proto, {"x": LINES}).of("y").biases
    assert low * (1 - 1e-5) <= found <= high * (1 + 1e-5)


def test_every_channel_has_the_scale_of_its_own():
    scales = np.array([0.5, 8.0, 0.5, 0.5], np.float32)
    dequantize = ("DequantizeLinear", ["codes", "scale"], ["bias"], {"axis": 0})
    add = ("Add", ["x", "bias"], ["y"], {})
    assert KnownErrors(file_of(dequantize, add, scale=scales), {"x": LINES}).of("y").biases == pytest.approx(4.0)


def quantized(name):
    return [("QuantizeLinear", [name, "step", "zero"], ["codes_of_it"], {}),
            ("DequantizeLinear", ["codes_of_it", "step", "zero"], ["y"], {})]  # fmt: skip


def test_errors_end_at_a_pair():
    proto = file_of(*BIASED, *quantized("sum"), step=np.float32(0.1), zero=np.int8(0))
    errors = KnownErrors(proto, {"x": LINES})
    assert (errors.of("sum").biases, errors.of("y")) == (pytest.approx(0.25), KnownError())


@pytest.mark.parametrize("op", ["Erf", "HardSigmoid", "Sigmoid", "Softmax", "Tanh"])
def test_saturating_functions_have_an_absolute_error(op):
    found = KnownErrors(file_of((op, ["x"], ["y"], {})), {"x": LINES}).of("y")
    assert found == (pytest.approx(SPACINGS, rel=0.3), 0.0)


def test_sums_have_an_error_relative_to_their_absolute_terms():
    kernel = np.full((4, 4), 1e30, np.float32)
    proto = file_of(("MatMul", ["x", "kernel"], ["sums"], {}), ("Clip", ["sums", "low", "high"], ["y"], {}),
                    kernel=kernel, low=np.float32(0.0), high=np.float32(6.0))  # fmt: skip
    x = np.array([[1, -1, 1, -1], [1, 1, 1, 1]], np.float32)
    assert KnownErrors(proto, {"x": x}).of("y").functions == pytest.approx(6.0)
    # Also where all sums of the tensor cancel to 0.
    assert KnownErrors(proto, {"x": x[:1]}).of("y").functions == pytest.approx(6.0)


def test_a_small_sum_beside_a_large_one_has_the_error_of_its_own_terms():
    """A row of x, the kernel the identity: every sum is one product."""
    proto = file_of(("MatMul", ["x", "kernel"], ["sums"], {}), ("Clip", ["sums", "low", "high"], ["y"], {}),
                    kernel=np.eye(4, dtype=np.float32), low=np.float32(0.0), high=np.float32(6.0))  # fmt: skip
    x = np.array([[1e30, 1, 1, 1]], np.float32)
    assert KnownErrors(proto, {"x": x}).of("y").functions == pytest.approx(SPACINGS, rel=0.3)


@pytest.mark.parametrize(
    ("nodes", "terms"),
    [
        ([("Add", ["x", "offset"], ["far"], {}), ("Sub", ["far", "offset"], ["y"], {})], 3e4),
        ([("Mul", ["x", "offset"], ["far"], {}), ("ReduceMean", ["far"], ["y"], {"axes": [1], "keepdims": 1})], 1e4),
    ],
    ids=["difference", "mean"],
)
def test_differences_and_means_have_the_error_of_what_cancels(nodes, terms):
    """The terms cancel: of x + 1e4 - 1e4, little is left, and the same of the mean of 1e4 and -1e4."""
    proto = file_of(*nodes, offset=np.float32(1e4))
    x = np.array([[1, -1, 1, -1]], np.float32)
    assert KnownErrors(proto, {"x": x}).of("y").functions == pytest.approx(terms * SPACINGS, rel=0.1)


@pytest.mark.parametrize(("size", "bound"), [(0.1, SPACINGS), (1e3, 1e3 * SPACINGS), (1e30, 2.0)])
def test_a_recurrent_layer_has_the_error_of_the_sums_in_it(size, bound):
    lines = ("Unsqueeze", ["x", "zero"], ["sequence"], {})
    layer = ("RNN", ["sequence", "w", "w"], ["", "last"], {"hidden_size": 4})
    proto = file_of(lines, layer, ("Squeeze", ["last", "zero"], ["y"], {}),
                    zero=np.array([0]), w=np.full((1, 4, 4), 0.01, np.float32))  # fmt: skip
    found = KnownErrors(proto, {"x": np.full((1, 4), size, np.float32)}).of("y").functions
    assert found == pytest.approx(bound, rel=0.3)


@pytest.mark.parametrize(("size", "largest"), [(1e4, 1e4), (1.0, 1.0)])
def test_a_normalization_has_the_error_of_what_it_subtracts(size, largest):
    """Of one value, the mean is the value itself, and the deviation the root of epsilon."""
    node = ("LayerNormalization", ["x", "gamma", "beta"], ["y"], {"axis": -1, "epsilon": 1e-4})
    proto = file_of(node, gamma=np.full(4, 2.0, np.float32), beta=np.zeros(4, np.float32))
    x = np.full((3, 4), size, np.float32)
    found = KnownErrors(proto, {"x": x}).of("y").functions
    assert found == pytest.approx(largest / 1e-2 * 2.0 * SPACINGS, rel=1e-2)


@pytest.mark.parametrize("op", ["Exp", "Relu", "Softplus", "LogSoftmax"])
def test_others_have_none(op):
    assert KnownErrors(file_of((op, ["x"], ["y"], {})), {"x": LINES}).of("y") == KnownError()


def test_what_is_no_number_explains_nothing():
    """At infinity, the difference of two runs is NaN."""
    proto = file_of(*BIASED, ("Exp", ["sum"], ["y"], {}))
    endless = KnownErrors(proto, {"x": np.full((1, 4), 1e30, np.float32)})
    assert endless.of("y") == KnownError()


def test_a_file_with_a_fixed_batch_and_more_samples():
    proto = file_of(("Sigmoid", ["x"], ["y"], {}))
    proto.graph.input[0].type.tensor_type.shape.dim[0].dim_value = 4
    assert KnownErrors(proto, {"x": LINES}).of("y").functions == pytest.approx(SPACINGS, rel=0.3)


@pytest.mark.parametrize("wrap", [lambda layer, name: layer, layers.SpectralNormalization])
@pytest.mark.parametrize("activation", ["sigmoid", "silu"])
def test_a_dead_activation_is_no_difference(activation, wrap, tmp_path, monkeypatch):
    image = keras.Input((4,), name="image")
    off = keras.initializers.Constant(-49.0)
    gate = wrap(layers.Dense(3, activation=activation, bias_initializer=off, name="gate"), name="gate")
    model = keras.Model(image, gate(image))
    spec = qdq.QuantizationSpec()
    spec.add("gate", quantize_output=True)
    q_model = qdq.quantize_model(model, quantization_spec=spec, target="onnxruntime")
    data = np.random.default_rng(0).normal(size=(32, 4)).astype("float32")
    qdq.calibrate(q_model, data, verbose=False)
    assert np.abs(q_model.activation_ranges()["gate"]).max() < 1e-15
    path = qdq.export_onnx(q_model, tmp_path / "model.onnx").path
    assert failed(path, q_model, data) == []
    without_errors(monkeypatch)
    assert "tensor by tensor" in failed(path, q_model, data)


def test_a_normalization_of_one_value_is_no_difference(tmp_path, monkeypatch):
    """Its result is beta; Keras adds and subtracts 1e4 / sqrt(epsilon) on the way, ONNX Runtime does not."""
    x = keras.Input((5, 1), name="x")
    model = keras.Model(x, layers.LayerNormalization(beta_initializer=keras.initializers.Constant(0.128))(x))
    spec = qdq.QuantizationSpec()
    spec.add("LayerNormalization", is_keras_class=True, quantize_output=True)
    q_model = qdq.quantize_model(model, quantization_spec=spec, target="tensorrt")
    data = np.random.default_rng(0).choice(np.float32([0.5, 7e3, 1e4]), (64, 5, 1))
    qdq.calibrate(q_model, data, verbose=False)
    path = qdq.export_onnx(q_model, tmp_path / "model.onnx").path
    assert failed(path, q_model, data) == []
    without_errors(monkeypatch)
    assert "tensor by tensor" in failed(path, q_model, data)


def test_a_coarse_bias_in_front_of_a_silu_is_no_difference(tmp_path, monkeypatch):
    """Weights of 2 bits make steps of the bias that are wider than those of the pair behind."""
    x = keras.Input((8,), name="x")
    bias = keras.initializers.Constant([0.01, 0.02, -0.01])
    dense = layers.Dense(3, activation="silu", bias_initializer=bias, name="dense")
    spec = qdq.QuantizationSpec()
    spec.add("dense", quantize_output=True, quantize_config=qdq.LayerQuantizeConfig(weight={"num_bits": 2}))
    q_model = qdq.quantize_model(keras.Model(x, dense(x)), quantization_spec=spec, target="onnxruntime")
    data = np.random.default_rng(0).uniform(-1e-3, 1e-3, (32, 8)).astype("float32")
    qdq.calibrate(q_model, data, verbose=False)
    q_model.activation_quantizers[0].set_range(-40.0, 40.0)
    path = qdq.export_onnx(q_model, tmp_path / "model.onnx").path
    report = qdq.verify_onnx(path, q_model, data)
    assert report.passed
    assert report.figures["lsb"]["by_bias"] > 1
    without_errors(monkeypatch)
    assert "tensor by tensor" in failed(path, q_model, data)
