"""Additions with a batch of 1: Keras (3.15) takes a sample with one long axis for the bias of a convolution."""

import keras
import numpy as np
import onnxruntime
import pytest
import tensorflow as tf
from keras import layers, ops

import qdq_workbench as qdq
from qdq_workbench.export.keras_side.broadcast_additions import BROADCAST_ADDITIONS

DATA = np.random.default_rng(0).normal(size=(6, 4, 3)).astype("float32")


def scores():
    """Pairs of elements as in graph attention, (4, 1) + (1, 4), and a value per row, (4, 4) + (4, 1)."""
    keras.utils.set_random_seed(0)
    x = keras.Input((4, 3), name="x")
    ours, theirs = layers.Dense(1, name="ours")(x), layers.Dense(1, name="theirs")(x)
    pairs = ours + ops.transpose(theirs, (0, 2, 1))
    rows = layers.Add(name="rows")([pairs, theirs])
    return keras.Model(x, layers.Dense(2, name="head")(rows))


@pytest.fixture(scope="module")
def q_model():
    made = qdq.quantize_model(scores(), target="onnxruntime")
    qdq.calibrate(made, DATA, verbose=False)
    return made


def test_a_value_per_row_is_no_bias_of_the_file_also_where_it_is_added_along_the_right_axis(tmp_path):
    x = keras.Input((2, 1, 1), name="x")
    q_model = qdq.quantize_model(keras.Model(x, layers.Dense(4, use_bias=False, name="dense")(x) + x))
    data = np.random.default_rng(0).normal(size=(6, 2, 1, 1)).astype("float32")
    qdq.calibrate(q_model, data, verbose=False)
    path = qdq.export_onnx(q_model, tmp_path / "model.onnx", dynamic_batch=False).path
    qdq.verify_onnx(path, q_model, data).raise_if_failed()


@pytest.mark.parametrize("dynamic_batch", [True, False])
@pytest.mark.parametrize("count", [1, 6])
def test_a_file_computes_what_the_model_does(q_model, dynamic_batch, count, tmp_path):
    path = qdq.export_onnx(q_model, tmp_path / "model.onnx", dynamic_batch=dynamic_batch).path
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    found = np.concatenate([session.run(None, {"x": DATA[k : k + 1]})[0] for k in range(6)])
    np.testing.assert_allclose(found, q_model.predict(DATA, verbose=0), atol=1e-5)
    qdq.verify_onnx(path, q_model, DATA[:count]).raise_if_failed()


def test_a_litert_file_computes_what_the_model_does(q_model, tmp_path):
    made = qdq.retarget(q_model, "litert")
    path = qdq.export_tflite(made, tmp_path / "model.tflite").path
    for count in (1, 6):
        qdq.files.verify_tflite(path, made, DATA[:count]).raise_if_failed()


def test_what_does_not_follow_from_the_batch_is_added_as_keras_does():
    """Whatever the batch size: the model is trained so."""
    row, square = tf.ones((1, 4, 1)) * [[[1.0], [2.0], [3.0], [4.0]]], tf.zeros((1, 4, 4))
    weight = keras.Variable(row)
    along_columns, along_rows = np.float32([[1, 2, 3, 4]] * 4), np.float32([[1, 2, 3, 4]] * 4).T

    def added(function, *sizes):
        with BROADCAST_ADDITIONS:
            signature = [tf.TensorSpec(size, name=name) for name, size in sizes]
            made = tf.function(function, input_signature=signature, jit_compile=False, autograph=False)
            values = {"batch": square, "sample": row, "qdq_weight_0": row}
            return made(*(values[name] for name, _ in sizes))[0].numpy()

    batch, sample = ("batch", (1, 4, 4)), ("sample", (1, 4, 1))
    assert (added(ops.add, batch, sample) == along_rows).all()
    for function in (lambda x: ops.add(x, weight), lambda x: ops.add(x, row), lambda x: ops.add(x, row.numpy())):
        assert (added(function, batch) == along_columns).all()
    assert (added(ops.add, batch, ("qdq_weight_0", (1, 4, 1))) == along_columns).all()


def test_samples_and_their_types_are_broadcast_eagerly():
    square, row = tf.zeros((1, 4, 4), "float16"), tf.reshape(tf.range(4.0), (1, 4, 1))
    with BROADCAST_ADDITIONS:
        found = ops.add(square, row)
        # As many axes, the right axis, or no sample: Keras adds it rightly, with or without a bias.
        for one, two in [((1, 4, 4), (1, 1, 4)), ((2, 4, 4), (2, 4, 1)), ((1, 2, 3), (1, 1, 1)), ((1, 4, 3), (4, 1))]:
            a, b = np.arange(np.prod(one)).reshape(one), np.arange(np.prod(two)).reshape(two)
            np.testing.assert_array_equal(ops.add(tf.constant(a), tf.constant(b)), a + b)
        np.testing.assert_array_equal(ops.add(tf.zeros((1, 4)), tf.ones((1, 1, 4, 1))), np.ones((1, 1, 4, 4)))
        assert ops.add(1, 2) == 3
    assert found.dtype == "float32"
    np.testing.assert_array_equal(found[0], np.float32([[0], [1], [2], [3]]) + np.zeros((1, 4)))
