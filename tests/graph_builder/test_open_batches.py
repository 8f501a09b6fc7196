"""The shapes of tensors behind a merge with a constant."""

import keras
import numpy as np
from keras import layers, ops

from qdq_workbench.graph_builder import build_graph

TABLE = np.ones((1, 4, 2), "float32")


def shapes(outputs, inputs):
    return {name: tensor.shape for name, tensor in build_graph(keras.Model(inputs, outputs)).tensors.items()}


def test_the_batch_is_open_behind_a_merge_with_a_constant_and_behind_all_that_reads_it():
    tokens = keras.Input((4, 2), name="tokens")
    placed = layers.Add(name="placed")([tokens, TABLE])
    found = shapes(layers.Dense(3, name="dense")(placed), tokens)
    assert placed.shape == (1, 4, 2)  # what Keras says
    assert found == {"tokens": (None, 4, 2), "placed": (None, 4, 2), "dense": (None, 4, 3)}


def test_a_batch_of_one_stays_where_the_model_has_it():
    tokens = keras.Input(batch_shape=(1, 4, 2), name="tokens")
    found = shapes(layers.Add(name="placed")([tokens, TABLE]), tokens)
    assert found == {"tokens": (1, 4, 2), "placed": (1, 4, 2)}


def test_a_mean_over_the_batch_is_one_sample():
    tokens = keras.Input((4, 2), name="tokens")
    mean = ops.mean(tokens, axis=0, keepdims=True)
    found = shapes(layers.Add(name="placed")([mean, TABLE]), tokens)
    assert list(found.values()) == [(None, 4, 2), (1, 4, 2), (1, 4, 2)]
