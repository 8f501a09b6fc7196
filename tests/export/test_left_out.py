"""What is planned and does not reach any output is left out of the file, and said; anything else is refused."""

from __future__ import annotations

import keras
import numpy as np
import onnx
import pytest
from keras import layers

import qdq_workbench as qdq
from qdq_workbench.errors import ExportError
from qdq_workbench.export.left_out import check_written, left_out_note, written_tensors


@keras.saving.register_keras_serializable(package="test_left_out")
class HalfUsed(layers.Layer):
    """Has two matrices and uses one."""

    def build(self, input_shape):
        self.used = self.add_weight(name="used", shape=(input_shape[-1], 3))
        self.spare = self.add_weight(name="spare", shape=(input_shape[-1], 3))

    def call(self, inputs):
        return keras.ops.matmul(inputs, self.used)


@keras.saving.register_keras_serializable(package="test_left_out")
class FirstOnly(layers.Layer):
    """Takes two tensors and uses one."""

    def call(self, inputs, other):
        return 2.0 * inputs


def exported(model, name, target, tmp_path):
    spec = qdq.QuantizationSpec()
    spec.add(name)
    q_model = qdq.quantize_model(model, quantization_spec=spec, target=target)
    data = np.random.default_rng(0).normal(size=(8, 4)).astype("float32")
    qdq.calibrate(q_model, data, verbose=False)
    with pytest.warns(UserWarning, match="Planned but not in the file"):
        report = qdq.export_onnx(q_model, tmp_path / "model.onnx")
    for given in (q_model, None):
        verification = qdq.verify_onnx(report.path, given, data)
        assert verification.passed, verification.summary()
        assert verification.figures["pairs"] == report.pairs
    assert report.pairs == len(q_model.plan.tensors) - len(report.left_out)
    assert report.pairs == len(written_tensors(onnx.load(report.path)))
    assert report.notes == (left_out_note(report.left_out),)
    assert report.to_dict()["left_out"] == list(report.left_out)
    return set(report.left_out)


@pytest.mark.parametrize("target", ["tensorrt", "onnxruntime"])
def test_a_weight_that_its_layer_does_not_use(target, tmp_path):
    x = keras.Input((4,), name="x")
    assert exported(keras.Model(x, HalfUsed(name="half")(x)), "half", target, tmp_path) == {"half/spare"}


@pytest.mark.parametrize("target", ["tensorrt", "onnxruntime"])
def test_an_input_that_its_layer_ignores_and_what_leads_there(target, tmp_path):
    x = keras.Input((4,), name="x")
    hidden = layers.Dense(2, name="hidden")(layers.Dense(3, name="first")(x))
    model = keras.Model(x, FirstOnly(name="choose")(layers.Dense(3, name="kept")(x), hidden))
    left_out = exported(model, "choose", target, tmp_path)
    assert left_out == {"first", "first/kernel", "hidden", "hidden/kernel"}


def test_a_pair_that_an_output_needs_must_be_there(tmp_path):
    x = keras.Input((4,), name="x")
    q_model = qdq.quantize_model(keras.Model(x, layers.Dense(3, name="dense")(x)))
    qdq.calibrate(q_model, np.ones((2, 4), "float32"), verbose=False)
    proto = onnx.load(qdq.export_onnx(q_model, tmp_path / "model.onnx").path)
    check_written(proto, {"x", "dense/kernel"})
    with pytest.raises(ExportError, match=r"missing \['lost'\], not planned \[\]"):
        check_written(proto, {"x", "dense/kernel", "lost"})
    with pytest.raises(ExportError, match=r"missing \[\], not planned \['x'\]"):
        check_written(proto, {"dense/kernel"})


def test_the_note_shows_four_names():
    assert left_out_note("fedcba").endswith("them: a, b, c, d and 2 more.")
