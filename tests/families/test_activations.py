"""Activations and numbers behind convolutions and dense layers, as layers of their own and as arguments, everywhere."""

import pytest
from families.test_contracts import float_model
from families.zoo import IMAGE, Family
from keras import layers
from keras.ops import relu6
from runtimes_agreement import compare

import qdq_workbench as qdq

ACTIVATIONS = ("relu", "relu6", "hard_sigmoid", "hard_silu", "silu", "gelu", "elu", "leaky_relu", "mish", "softplus")
ACTIVATIONS = (*ACTIVATIONS, "tanh", "sigmoid")
NUMBERS = {
    "half": lambda x: x * 0.5,
    "shifted": lambda x: x + 3.0,
    "lowered": lambda x: x - 1.0,
    "turned": lambda x: 1.0 - x,
    "divided": lambda x: x / 2.0,
}
PRODUCTS = {
    "conv": (IMAGE, lambda **more: layers.Conv2D(2, 3, **more)),
    "bare_conv": (IMAGE, lambda **more: layers.Conv2D(2, 3, use_bias=False, **more)),
    "dense": ((4,), lambda **more: layers.Dense(2, **more)),
    "bare_dense": ((4,), lambda **more: layers.Dense(2, use_bias=False, **more)),
    "transposed": (IMAGE, lambda **more: layers.Conv2DTranspose(2, 3, **more)),
    "bare_transposed": (IMAGE, lambda **more: layers.Conv2DTranspose(2, 3, use_bias=False, **more)),
    "einsum": ((5, 4), lambda **more: layers.EinsumDense("abc,cd->abd", (None, 3), bias_axes="d", **more)),
}
# TensorFlow would add up a bias of one number and what the activation adds; LiteRT's converter does, or moves it behind
# a Reshape.
NARROW = {
    "narrow": ((4,), lambda **more: layers.Dense(1, **more)),
    "bare_narrow": ((4,), lambda **more: layers.Dense(1, use_bias=False, **more)),
    "bare_narrow_steps": ((6, 4), lambda **more: layers.Dense(1, use_bias=False, **more)),
    "bare_narrow_conv": (IMAGE, lambda **more: layers.Conv2D(1, 3, use_bias=False, **more)),
    "narrow_transposed": ((6, 3), lambda **more: layers.Conv1DTranspose(1, 3, **more)),
}


def shifted(x):
    """A function of the user that begins with an addition."""
    return relu6(x + 3.0) * 0.5


def parts(product):
    """One part per activation, as an argument and as a layer, and per number."""
    shape, make = (PRODUCTS | NARROW)[product]

    def with_argument(name):
        label = getattr(name, "__name__", name)
        return Family(f"{product}_{label}", (shape,), lambda label, x: make(name=label, activation=name)(x))

    def behind(name, after):
        return Family(f"{product}_{name}", (shape,), lambda label, x: after(make(name=label)(x)))

    apart = [behind(f"{name}_apart", layers.Activation(name)) for name in ACTIVATIONS]
    if product not in ("conv", "dense"):
        return [with_argument("hard_sigmoid"), with_argument(shifted)]
    return [*map(with_argument, ACTIVATIONS), *apart, *(behind(*row) for row in NUMBERS.items())]


@pytest.fixture(scope="module")
def floats():
    """One model of all parts, and samples."""
    families = [part for product in PRODUCTS for part in parts(product)]
    return float_model(families), [array for family in families for array in family.samples()]


@pytest.mark.parametrize("target", ["tensorrt", "onnxruntime", "openvino", "litert"])
def test_the_file_is_the_plans_and_computes_the_same(target, floats, tmp_path):
    report = verified(*floats, target, tmp_path)
    assert not report.form_remark


@pytest.fixture(scope="module")
def narrow():
    """One model of the parts with one unit, and samples."""
    families = [part for product in NARROW for part in parts(product)]
    return float_model(families), [array for family in families for array in family.samples()]


@pytest.mark.parametrize("target", ["tensorrt", "onnxruntime", "openvino", "litert"])
def test_a_bias_of_one_number_stays_apart_from_what_the_activation_adds(target, narrow, tmp_path):
    report = verified(*narrow, target, tmp_path)
    assert target == "litert" or not report.form_remark


def verified(model, samples, target, tmp_path):
    """Return the report on the file of a model, which passed."""
    q_model = qdq.quantize_model(model, target=target)
    qdq.calibrate(q_model, samples, verbose=False)
    if target == "litert":
        path = qdq.export_tflite(q_model, tmp_path / "model.tflite").path
        report = qdq.files.verify_tflite(path, q_model)
    else:
        report = qdq.verify_onnx(qdq.export_onnx(q_model, tmp_path / "model.onnx").path, q_model, samples)
    assert report.passed, report.summary()
    return report


@pytest.mark.parametrize("made", ["floats", "narrow"])
def test_onnx_runtime_computes_what_is_said(made, request, tmp_path):
    model, samples = request.getfixturevalue(made)
    q_model = qdq.quantize_model(model, target="onnxruntime")
    qdq.calibrate(q_model, samples, verbose=False)
    compared, differing = compare(q_model, tmp_path / "model.onnx")
    assert compared > (2 * len(ACTIVATIONS) if made == "floats" else len(NARROW))
    assert differing == []
