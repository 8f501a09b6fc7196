"""Activations and numbers behind convolutions and dense layers, as layers of their own and as arguments, everywhere."""

import pytest
from families.test_contracts import float_model
from families.zoo import IMAGE, Family
from keras import layers
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
}


def parts(product):
    """One part per activation, as an argument and as a layer, and per number."""
    shape, make = PRODUCTS[product]

    def with_argument(name):
        return Family(f"{product}_{name}", (shape,), lambda label, x: make(name=label, activation=name)(x))

    def behind(name, after):
        return Family(f"{product}_{name}", (shape,), lambda label, x: after(make(name=label)(x)))

    apart = [behind(f"{name}_apart", layers.Activation(name)) for name in ACTIVATIONS]
    if product not in ("conv", "dense"):
        return [with_argument("hard_sigmoid")]
    return [*map(with_argument, ACTIVATIONS), *apart, *(behind(*row) for row in NUMBERS.items())]


@pytest.fixture(scope="module")
def floats():
    """One model of all parts, and samples."""
    families = [part for product in PRODUCTS for part in parts(product)]
    return float_model(families), [array for family in families for array in family.samples()]


@pytest.mark.parametrize("target", ["tensorrt", "onnxruntime", "openvino", "litert"])
def test_the_file_is_the_plans_and_computes_the_same(target, floats, tmp_path):
    model, samples = floats
    q_model = qdq.quantize_model(model, target=target)
    qdq.calibrate(q_model, samples, verbose=False)
    if target == "litert":
        path = qdq.export_tflite(q_model, tmp_path / "model.tflite").path
        report = qdq.files.verify_tflite(path, q_model)
    else:
        report = qdq.verify_onnx(qdq.export_onnx(q_model, tmp_path / "model.onnx").path, q_model, samples)
        assert not report.form_remark
    assert report.passed, report.summary()


def test_onnx_runtime_computes_what_is_said(floats, tmp_path):
    model, samples = floats
    q_model = qdq.quantize_model(model, target="onnxruntime")
    qdq.calibrate(q_model, samples, verbose=False)
    compared, differing = compare(q_model, tmp_path / "model.onnx")
    assert compared > 2 * len(ACTIVATIONS)
    assert differing == []
