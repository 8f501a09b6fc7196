"""What a mask leaves out does not count, where the layer that reads it supports masking."""

import keras
import numpy as np
import tensorflow as tf
from keras import layers

import qdq_workbench as qdq
from qdq_workbench.calibration.padding import mask_of, rows_of


def masked(values, mask):
    tensor = tf.constant(values)
    tensor._keras_mask = tf.constant(mask)
    return tensor


def test_the_axes_of_a_mask_are_the_first_ones():
    values, mask = np.arange(12.0).reshape(2, 3, 2), np.array([[True, False, True], [False, False, True]])
    rows, counts = rows_of(values, mask)
    assert rows.tolist() == [[0, 1], [0, 0], [4, 5], [0, 0], [0, 0], [10, 11]]
    assert counts.sum(axis=0).tolist() == [3, 3]
    _, over_time = rows_of(values, mask, axis=1)  # a channel per step of time
    assert over_time.sum(axis=0).tolist() == [2, 0, 4]
    assert rows_of(values)[1].all()


def test_a_layer_that_does_not_support_masking_reads_padding():
    tensor = masked(np.zeros((2, 3, 4)), np.ones((2, 3), bool))
    assert mask_of(tensor) is mask_of(tensor, layers.Dense(2), layers.LSTM(2)) is tensor._keras_mask
    assert mask_of(tensor, layers.Dense(2), layers.Conv1D(2, 1)) is None
    assert mask_of(tf.zeros((2, 3, 4))) is None
    # A layer of the user's own may pass on a mask that belongs to other axes.
    assert mask_of(masked(np.zeros((2, 4, 3)), np.ones((2, 3), bool))) is None
    assert mask_of(masked(np.zeros(2), np.ones((2, 3), bool))) is None
    per_step = masked(np.zeros((2, 3)), np.ones((2, 3), bool))  # one value per step
    assert mask_of(per_step) is per_step._keras_mask


def test_values_of_tensors_come_with_their_masks():
    tokens = keras.Input((None,), dtype="int32", name="tokens")
    hidden = layers.Dense(2, name="dense")(layers.Embedding(5, 3, mask_zero=True, name="table")(tokens))
    model = keras.Model(tokens, layers.GlobalAveragePooling1D(name="pool")(hidden))
    (batch,) = qdq.tensor_values(qdq.quantize_model(model), np.array([[1, 2, 0], [3, 0, 0]]))
    assert batch.float["dense"].shape == (2, 3, 2)
    assert set(batch.masks) == {"table", "dense"}
    assert batch.masks["dense"].tolist() == [[True, True, False], [True, False, False]]
