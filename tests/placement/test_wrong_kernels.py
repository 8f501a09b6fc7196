"""A softmax along one element gets no pair where the target's integer kernel computes it wrongly."""

import keras
import numpy as np
import onnxruntime
import pytest
from keras import layers, ops

import qdq_workbench as qdq

pytestmark = pytest.mark.filterwarnings("ignore:.*This axis has size 1:UserWarning")


def chain(*parts):
    """The parts one behind the other, between two dense layers."""
    x = keras.Input((4,), name="x")
    y = layers.Dense(1, name="first")(x)
    for part in parts:
        y = part(y)
    return keras.Model(x, layers.Dense(2, name="last")(y))


MODELS = {
    "layer": lambda: chain(layers.Softmax(name="soft")),
    "activation": lambda: chain(layers.Activation("softmax", name="soft")),
    "operation": lambda: chain(ops.softmax),
    "behind a linear": lambda: chain(layers.Softmax(name="soft"), layers.Activation("linear", name="linear")),
    "moved": lambda: chain(layers.Reshape((1, 1)), layers.Softmax(axis=(1, 2), name="soft"), layers.Flatten()),
}
SPEC = [
    {"name": "first", "quantize_output": True},
    {"name": "soft", "quantize_input": False, "quantize_output": True},
    {"name": "last"},
]


def quantized(model, target):
    spec = qdq.QuantizationSpec()
    for entry in SPEC:
        if entry["name"] in {layer.name for layer in model.layers}:
            spec.add(**entry)
    q_model = qdq.quantize_model(model, quantization_spec=spec, target=target)
    data = np.random.default_rng(0).normal(size=(5, 4)).astype(np.float32)
    qdq.calibrate(q_model, data, verbose=False)
    return q_model, data


@pytest.mark.parametrize("kind", MODELS)
def test_the_file_computes_what_keras_computes(kind, tmp_path):
    keras.utils.set_random_seed(0)
    q_model, data = quantized(MODELS[kind](), "onnxruntime")
    assert {tensor.name for tensor in q_model.plan.tensors} == {"x", "first", "first/kernel", "last/kernel"}
    (left,) = (entry for entry in q_model.plan.unquantized if entry.layer == "last" and entry.what == "input 0")
    assert "one element" in left.reason
    explained = qdq.explain(q_model.plan)
    verdicts = {layer.layer: layer.reason for layer in explained.layers}
    assert any("one element" in reason for reason in verdicts.values())
    # What a specification cannot change is no advice.
    fixed = qdq.plan_placement(q_model.plan.graph, quantization_spec=explained.apply_fixes(), target="onnxruntime")
    assert not [layer for layer in qdq.explain(fixed).layers if layer.fix]
    assert "one element" in explained.for_layer("last").reason
    path = tmp_path / "model.onnx"
    qdq.export_onnx(q_model, path)
    qdq.verify_onnx(path, q_model, data).raise_if_failed()
    found = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"]).run(None, {"x": data})[0]
    np.testing.assert_allclose(found, q_model(data), rtol=1e-5)


@pytest.mark.parametrize("target", ["tensorrt", "openvino", "litert"])
def test_other_targets_keep_their_pairs(target):
    plan = qdq.plan_placement(MODELS["layer"](), target=target)
    assert "soft" in {tensor.name for tensor in plan.tensors}
    assert "soft" not in {tensor.name for tensor in qdq.plan_placement(MODELS["layer"](), target="onnxruntime").tensors}


def test_a_softmax_of_two_elements_or_an_open_number_keeps_its_pairs():
    for shape in ((2,), (None, 1)):
        x = keras.Input(shape, name="x")
        y = layers.Dense(2)(layers.Softmax(name="soft", axis=1)(x))
        plan = qdq.plan_placement(keras.Model(x, y), target="onnxruntime")
        assert "soft" in {tensor.name for tensor in plan.tensors}
