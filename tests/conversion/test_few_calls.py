"""Verification and calibration compute a few samples operation by operation, and get what a traced function gives."""

import importlib

import keras
import numpy as np
import pytest

from qdq_workbench import calibrate, export_onnx, quantize_model, verify_onnx
from qdq_workbench.conversion.engine.few_calls import for_few_calls

few_calls = importlib.import_module("qdq_workbench.conversion.engine.few_calls")
reader = importlib.import_module("qdq_workbench.calibration.reader")
L = keras.layers


def _image_model():
    image = keras.Input((6, 6, 2), name="image")
    x = L.BatchNormalization(name="norm")(L.Conv2D(4, 3, use_bias=False, name="conv")(image))
    return keras.Model(image, L.Dense(3, name="head")(L.Flatten(name="flat")(L.ReLU(name="relu")(x))))


def _quantized(model):
    shape = (8, *model.input_shape[1:])
    samples = np.random.default_rng(0).normal(size=shape).astype(np.float32)
    q_model = quantize_model(model, target="onnxruntime")
    calibrate(q_model, samples, verbose=False)
    return q_model, samples


def test_both_ways_give_the_same_report(tmp_path, monkeypatch):
    q_model, samples = _quantized(_image_model())
    path = export_onnx(q_model, tmp_path / "model.onnx").path
    by_operation = verify_onnx(path, q_model, samples)
    asked, traced = [], few_calls.traced
    monkeypatch.setattr(few_calls, "traced", lambda *given: asked.append(given) or traced(*given))
    monkeypatch.setattr(few_calls, "_MOST_VALUES", 0)
    assert verify_onnx(path, q_model, samples).to_dict() == by_operation.to_dict()
    assert len(asked) == 2


@pytest.mark.parametrize(
    "layer",
    [
        lambda: L.LSTM(3, name="loop"),
        lambda: L.Bidirectional(L.GRU(2, name="way"), name="loop"),
        lambda: L.TimeDistributed(L.Dense(3), name="loop"),
    ],
)
def test_a_model_with_a_loop_is_traced(layer):
    steps = keras.Input((5, 2), name="steps")
    model = keras.Model(steps, L.Dense(2, name="head")(layer()(steps)))
    q_model, samples = _quantized(model)

    def function(inputs):
        return q_model(inputs)

    assert for_few_calls(q_model, function, samples) is not function


def test_many_values_are_traced(monkeypatch):
    q_model, samples = _quantized(_image_model())

    def function(inputs):
        return q_model(inputs)

    values = sum(np.prod(tensor.shape[1:]) for tensor in q_model.plan.graph.tensors.values())
    monkeypatch.setattr(few_calls, "_MOST_VALUES", len(samples) * values)
    assert for_few_calls(q_model, function, [samples]) is function
    monkeypatch.setattr(few_calls, "_MOST_VALUES", len(samples) * values - 1)
    assert for_few_calls(q_model, function, [samples]) is not function


def test_open_sizes_are_those_of_the_inputs(monkeypatch):
    image = keras.Input((None, None, 2), name="image")
    hidden = L.Conv2D(4, 3, padding="same", name="conv")(image)
    model = keras.Model(image, L.Dense(3, name="head")(L.GlobalAveragePooling2D(name="pool")(hidden)))
    q_model = quantize_model(model)

    def function(inputs):
        return q_model(inputs)

    monkeypatch.setattr(few_calls, "_MOST_VALUES", 2 * (12 * 10 * (2 + 4) + 4 + 3))
    small, large = (np.zeros((2, 12, width, 2), np.float32) for width in (10, 11))
    assert for_few_calls(q_model, function, small) is function
    assert for_few_calls(q_model, function, {"x": large}) is not function


@pytest.mark.parametrize("method", ["minmax", "percentile", "mse"])
def test_calibration_finds_the_same_ranges(monkeypatch, method):
    q_model, _ = _quantized(_image_model())
    samples = np.random.default_rng(1).normal(size=(20, 6, 6, 2)).astype(np.float32)
    asked, untraced = [], reader.runs_untraced
    monkeypatch.setattr(reader, "runs_untraced", lambda *given: asked.append(given) or untraced(*given))
    few = calibrate(q_model, samples, method=method, batch_size=5, verbose=False).ranges
    assert len(asked) == 4
    many = calibrate(q_model, samples, method=method, batch_size=4, verbose=False).ranges
    assert len(asked) == 4
    assert few == many
