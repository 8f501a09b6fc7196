"""Corrections of weights whose blocks have scales of their own: each block is taken by itself."""

import keras
import numpy as np
import pytest
from keras import layers

import qdq_workbench as qdq


@pytest.fixture(scope="module")
def model():
    keras.utils.set_random_seed(0)
    row = keras.Input((40,), name="row")
    made = keras.Model(row, layers.Dense(4, name="head")(row))
    kernel = np.random.default_rng(0).normal(size=(40, 4)).astype("float32")
    kernel[3, 1], kernel[35, 2] = 9.0, -9.0  # one outlier in the first block of a column, one in the last of another
    made.get_layer("head").kernel.assign(kernel)
    return made


def test_an_outlier_is_cut_in_its_own_block(model):
    plan = qdq.plan_placement(model, "partial", qdq.correction.weights_alone(model, 4, 16), target="onnxruntime")
    before, after = (m.get_layer("head").kernel.numpy() for m in (model, qdq.correction.clip_weights(model, plan=plan)))
    assert after[3, 1] < 9.0
    assert after[35, 2] > -9.0
    np.testing.assert_array_equal(
        after[16:32, 1], np.clip(before[16:32, 1], after[16:32, 1].min(), after[16:32, 1].max())
    )
    assert np.abs(after[16:32, 1]).max() > 0.5 * np.abs(before[16:32, 1]).max()


def test_clusters_are_those_of_a_block(model):
    plan = qdq.plan_placement(model, "partial", qdq.correction.weights_alone(model, 4, 16), target="onnxruntime")
    after = qdq.correction.codebook_weights(model, 2, "kmeans", plan=plan).get_layer("head").kernel.numpy()
    counts = [len(np.unique(after[start : start + 16, column])) for start in (0, 16, 32) for column in range(4)]
    assert max(counts) == 4
    assert len(np.unique(after[:, 0])) > 4


def test_learned_rounding_keeps_the_scale_of_every_block(model):
    plan = qdq.plan_placement(model, "partial", qdq.correction.weights_alone(model, 3, 16), target="onnxruntime")
    model = qdq.correction.clip_weights(model, plan=plan)
    spec = qdq.correction.weights_alone(model, 3, 16)
    q_model = qdq.quantize_model(model, "partial", spec, target="onnxruntime")
    before = qdq.integer_weights(q_model)["head/kernel"]
    x = np.random.default_rng(0).normal(size=(128, 4)) @ np.random.default_rng(1).normal(size=(4, 40))
    report = qdq.learn_rounding(q_model, x.astype("float32"), steps=100, learning_rate=0.1, verbose=False)
    after = qdq.integer_weights(q_model)["head/kernel"]
    np.testing.assert_array_equal(after.scale, before.scale)
    assert int((after.codes != before.codes).sum()) == report.units[0].changed > 0
    assert report.units[0].learned_error < report.units[0].nearest_error


def test_a_lint_takes_weights_alone_for_what_they_are(model, tmp_path):
    spec = qdq.correction.weights_alone(model, 4, 16)
    q_model = qdq.quantize_model(model, "partial", spec, target="onnxruntime")
    report = qdq.export_onnx(q_model, tmp_path / "model.onnx")
    assert qdq.foreign.lint_onnx(report.path).findings == ()
