"""Models whose outputs depend on the batch: a file with a fixed one is compared with the model on one batch."""

import keras
import numpy as np
import onnx
import pytest
from keras import layers, ops

import qdq_workbench as qdq
from qdq_workbench.conversion.engine.sample_rows import are_first_rows
from qdq_workbench.export.litert.tflite_run import run_tflite
from qdq_workbench.verification.parity import Parity
from qdq_workbench.verification.samples import divisible_samples

DATA = np.random.default_rng(0).normal(size=(8, 3)).astype("float32")


@pytest.fixture(scope="module")
def q_model():
    x = keras.Input((3,), name="x")
    parts = ops.unstack(x, axis=1)
    joined = layers.Concatenate(name="joined")([parts[0], parts[2], parts[2]])  # of the samples: there is no other axis
    rows = layers.Dense(4, name="rows")(x)
    means = layers.Lambda(lambda values: ops.mean(values, axis=0), name="means")(rows)
    mean = layers.Lambda(ops.mean, name="mean", output_shape=lambda shape: shape[:0])(rows)
    flat = layers.Lambda(lambda values: ops.reshape(values, (-1,)), name="flat")(rows)
    left = layers.Lambda(lambda values: values - ops.mean(values, axis=0, keepdims=True), name="left")(rows)
    q_model = qdq.quantize_model(keras.Model(x, [joined, rows, means, mean, flat, left]), target="onnxruntime")
    qdq.calibrate(q_model, DATA, verbose=False)
    return q_model


@pytest.mark.parametrize("dynamic_batch", [True, False])
def test_an_onnx_file_verifies(q_model, dynamic_batch, tmp_path):
    path = qdq.export_onnx(q_model, tmp_path / "model.onnx", dynamic_batch=dynamic_batch).path
    qdq.verify_onnx(path, q_model, data=DATA).raise_if_failed()


def test_one_batch_tells_a_wrong_file_from_a_right_one(q_model, tmp_path):
    proto = onnx.load(qdq.export_onnx(q_model, tmp_path / "model.onnx", dynamic_batch=False).path)
    samples = divisible_samples(proto, q_model, {"x": DATA})
    assert len(samples["x"]) == 1

    def passed():
        return {end.output: end.passed for end in Parity(proto, q_model, samples).end_to_end(optimized=False)}

    assert all(passed().values())
    bias = q_model.get_layer("quant_rows").layer.bias
    right = bias.numpy()
    bias.assign(right + 1)
    assert passed() == {"joined": True, "rows": False, "means": False, "mean": False, "flat": False, "left": True}
    bias.assign(right)


def test_rows_that_depend_on_the_batch_verify(tmp_path):
    x = keras.Input((3,), name="x")
    rows = layers.Dense(4, name="rows")(x)
    left = layers.Lambda(lambda values: values - ops.mean(values, axis=0, keepdims=True), name="left")(rows)
    q_model = qdq.quantize_model(keras.Model(x, left), target="onnxruntime")
    qdq.calibrate(q_model, DATA, verbose=False)
    path = qdq.export_onnx(q_model, tmp_path / "model.onnx", dynamic_batch=False).path
    qdq.verify_onnx(path, q_model, data=DATA).raise_if_failed()
    report = qdq.export_tflite(q_model, tmp_path / "model.tflite", batch=2)
    assert not any("NOT accurate" in note for note in report.notes)
    qdq.verify_tflite(report.path, q_model, data=DATA).raise_if_failed()


def test_samples_that_a_model_computes_by_themselves_are_all_compared(tmp_path):
    x = keras.Input((3,), name="x")
    q_model = qdq.quantize_model(keras.Model(x, layers.Dense(4, name="rows")(x)), target="onnxruntime")
    qdq.calibrate(q_model, DATA, verbose=False)
    proto = onnx.load(qdq.export_onnx(q_model, tmp_path / "model.onnx", dynamic_batch=False).path)
    assert len(divisible_samples(proto, q_model, {"x": DATA})["x"]) == 8


def test_rows_that_depend_on_others_are_no_rows_of_the_samples():
    many = np.arange(12.0).reshape(4, 3)
    assert are_first_rows([many[:2]], [many], 4)
    assert are_first_rows([np.resize(many, (6, 3))], [many], 4)  # a batch filled up by repetition
    assert not are_first_rows([many[:2] - 1.0], [many], 4)
    assert not are_first_rows([many[:2], many[:2].mean(0)], [many, many.mean(0)], 4)
    assert not are_first_rows([many[:2] * np.nan], [many], 4)


@pytest.mark.parametrize("batch", [None, 2])
def test_a_litert_file_verifies(q_model, batch, tmp_path):
    report = qdq.export_tflite(q_model, tmp_path / "model.tflite", batch=batch)
    assert not any("NOT accurate" in note for note in report.notes)
    assert report.mean_difference < 0.01
    qdq.verify_tflite(report.path, q_model, data=DATA).raise_if_failed()
    if batch:
        content = report.path.read_bytes()
        assert run_tflite(content, {"x": DATA[:batch]})["means"].shape == (4,)
        with pytest.raises(ValueError, match=r"has no row per sample.*one batch of 2 samples.*8 samples, an output of"):
            run_tflite(content, {"x": DATA})
