"""Float weights of matrix products, and layers that vanish between a pair and its reader: as ONNX Runtime has them."""

import keras
import numpy as np
import onnx
import pytest
from keras import layers
from runtimes_agreement import compare
from small_models import samples

import qdq_workbench as qdq
from qdq_workbench.verification import count_integer_kernels


def quantized(model, *entries):
    spec = qdq.QuantizationSpec()
    for entry in entries:
        spec.add(**entry)
    q_model = qdq.quantize_model(model, quantization_spec=spec, target="onnxruntime")
    qdq.calibrate(q_model, samples(model), verbose=False)
    return q_model


@pytest.mark.parametrize("activation", [None, "relu"])
@pytest.mark.parametrize(
    ("shape", "bias"), [((6,), True), ((6,), False), ((4, 6), True), ((4, 6), False), ((2, 4, 6), True)]
)
def test_a_float_weight_between_two_pairs_stays_in_float(shape, bias, activation, tmp_path):
    keras.utils.set_random_seed(0)
    tokens = keras.Input(shape, name="tokens")
    hidden = layers.Dense(8, use_bias=bias, bias_initializer="normal", activation=activation, name="dense")(tokens)
    model = keras.Model(tokens, layers.Dense(3, name="head")(hidden))
    q_model = quantized(model, {"name": "dense", "quantize_input": True, "quantize_weight": False})
    _, differing = compare(q_model, tmp_path / "model.onnx")
    assert qdq.explain(q_model).for_layer("dense").rule == "ORT-WEIGHT"
    assert differing == []


def test_a_linear_activation_is_no_layer_of_the_file(tmp_path):
    keras.utils.set_random_seed(0)
    image = keras.Input((8, 8, 2), name="image")
    x = layers.Conv2D(4, 3, padding="same", bias_initializer="normal", name="conv")(image)
    identity = layers.Activation("linear", name="identity")(x)
    added = layers.Add(name="add")([layers.Conv2D(4, 1, bias_initializer="normal", name="side")(image), identity])
    model = keras.Model(image, layers.Conv2D(2, 1, bias_initializer="normal", name="last")(added))
    off = {"quantize_weight": False}
    q_model = quantized(
        model,
        {"name": "identity", "quantize_input": True, **off},
        {"name": "side", "quantize_output": True},
        {"name": "add", "quantize_input": False, **off},
    )
    _, differing = compare(q_model, tmp_path / "model.onnx")
    explanation = qdq.explain(q_model)
    assert differing == []
    assert explanation.for_layer("identity").rule == "ORT-VANISHES"
    assert explanation.for_layer("add").status == "int8"
    assert count_integer_kernels(onnx.load(tmp_path / "model.onnx")).counts["Add"] == (1, 1)


@pytest.mark.parametrize(("shape", "fused"), [((6,), True), ((4, 6), False)])
def test_a_relu_behind_the_bias_of_a_sequence_is_computed_in_float(shape, fused, tmp_path):
    """On a sequence the bias is an addition of floats between the product and the ReLU; on a matrix a part of Gemm."""
    keras.utils.set_random_seed(0)
    tokens = keras.Input(shape, name="tokens")
    hidden = layers.Dense(8, bias_initializer="normal", name="dense")(tokens)
    hidden = layers.ReLU(6.0, name="relu")(hidden)
    model = keras.Model(tokens, layers.Dense(3, name="head")(hidden))
    q_model = quantized(model)
    _, differing = compare(q_model, tmp_path / "model.onnx")
    assert differing == []
    assert qdq.explain(q_model).for_layer("relu").rule == ("ORT-FUSED" if fused else "ORT-ACTIVATION")
    assert qdq.explain(q_model).for_layer("dense").status == "int8"


@pytest.mark.parametrize("own_bias", [False, True])
@pytest.mark.parametrize("norm", [False, True])
@pytest.mark.parametrize(
    "entry",
    [{"name": "head"}, {"name": "head", "quantize_input": False}, {"name": "dense", "quantize_weight": False}],
    ids=["pairs", "no pair behind", "float weight"],
)
def test_a_constant_that_becomes_the_bias_of_a_gemm_counts_as_its_own(own_bias, norm, entry, tmp_path):
    keras.utils.set_random_seed(0)
    x = keras.Input((6,), name="x")
    y = layers.Dense(8, use_bias=own_bias, bias_initializer="normal", name="dense")(x)
    y = layers.BatchNormalization(name="norm")(y) if norm else y
    y = layers.ReLU(name="relu")(y + np.linspace(-1, 1, 8).astype("float32"))
    q_model = quantized(keras.Model(x, layers.Dense(3, name="head")(y)), entry)
    _, differing = compare(q_model, tmp_path / "model.onnx")
    assert differing == []


def test_all_constants_behind_a_dense_layer_are_a_part_of_its_bias(tmp_path):
    keras.utils.set_random_seed(0)
    x = keras.Input((6,), name="x")
    y = layers.Dense(8, bias_initializer="normal", name="dense")(x) + np.linspace(-1, 1, 8).astype("float32")
    y = layers.ReLU(name="relu")(y + np.linspace(0, 1, 8).astype("float32")[None])
    q_model = quantized(keras.Model(x, layers.Dense(3, name="head")(y)))
    _, differing = compare(q_model, tmp_path / "model.onnx")

    assert differing == []
    assert [node.op_type for node in onnx.load(tmp_path / "model.onnx").graph.node].count("Add") == 0
    assert qdq.explain(q_model).for_layer("relu").rule == "ORT-FUSED"
    assert qdq.verify_onnx(tmp_path / "model.onnx", q_model).passed


@keras.saving.register_keras_serializable(package="test_products")
def more(x):
    return x + 0.3


@keras.saving.register_keras_serializable(package="test_products")
def less(x):
    return x - 0.3


def test_what_is_added_behind_one_unit_is_no_part_of_its_bias_in_the_file(tmp_path):
    """TensorFlow adds up two constants of one value: the product lost its bias, and ran in float."""
    keras.utils.set_random_seed(0)
    added = {
        "activation": layers.Activation(more, name="activation"),
        "difference": layers.Activation(less, name="difference"),
        "rescaling": layers.Rescaling(1.0, 0.3, name="rescaling"),
        "bend": layers.Activation("hard_sigmoid", name="bend"),
        "operation": more,
        "conv": layers.Activation(more, name="behind_conv"),
    }
    x, image = keras.Input((6,), name="x"), keras.Input((5, 5, 2), name="image")
    one = {"units": 1, "bias_initializer": "ones"}
    given = {name: layers.Dense(**one, name=f"{name}_unit")(x) for name in added if name != "conv"}
    given["conv"] = layers.Conv2D(1, 2, bias_initializer="ones", name="conv_unit")(image)
    q_model = quantized(keras.Model([x, image], [add(given[name]) for name, add in added.items()]))
    compared, differing = compare(q_model, tmp_path / "model.onnx")

    assert compared >= len(added)
    assert differing == []
    assert {qdq.explain(q_model).for_layer(f"{name}_unit").status for name in added if name != "conv"} == {"int8"}
    report = qdq.verify_onnx(tmp_path / "model.onnx", q_model)
    assert report.passed, report.summary()
