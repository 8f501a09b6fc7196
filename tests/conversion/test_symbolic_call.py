"""Layers connected directly stand in the graph as if they had been called; those that need a call are called."""

import keras
import numpy as np
import pytest

from qdq_workbench.conversion.symbolic_call import connect
from qdq_workbench.graph_builder import carries_mask


@pytest.mark.parametrize(
    ("make", "count"),
    [
        (lambda: keras.layers.Conv2D(2, 3, name="conv"), 1),
        (lambda: keras.layers.BatchNormalization(name="bn"), 1),
        (lambda: keras.layers.Add(name="add"), 2),
        (lambda: keras.layers.Resizing(4, 4, name="own_call"), 1),
    ],
)
def test_a_connected_layer_computes_like_a_called_one(make, count):
    images = [keras.Input((6, 6, 3)) for _ in range(count)]
    argument = images if count > 1 else images[0]
    connected, called = make(), make()
    model = keras.Model(argument, connect(connected, (argument,), {}))
    other = keras.Model(argument, called(argument))
    called.set_weights(connected.get_weights())
    assert connected.built
    ours, theirs = (m.get_config()["layers"] for m in (model, other))  # `mask=None` may be added to calls
    assert [layer["config"] for layer in ours] == [layer["config"] for layer in theirs]
    assert ours[-1]["build_config"] == theirs[-1]["build_config"]
    values = [np.random.default_rng(0).normal(size=(2, 6, 6, 3)).astype(np.float32)] * count
    np.testing.assert_array_equal(model(values if count > 1 else values[0]), other(values if count > 1 else values[0]))


def test_masks_and_other_precisions_go_through_a_call():
    tokens = keras.Input((4,), dtype="int32")
    embedded = connect(keras.layers.Embedding(5, 3, mask_zero=True), (tokens,), {}, gives_masks=True)
    assert carries_mask(embedded)
    assert carries_mask(connect(keras.layers.Dropout(0.5), (embedded,), {}))
    half = connect(keras.layers.Dense(2, dtype="mixed_float16"), (keras.Input((3,)),), {})
    assert half.dtype == "float16"


def test_operations_and_further_arguments_go_through_a_call():
    image = keras.Input((4, 3))
    attention = keras.layers.MultiHeadAttention(1, 2)
    assert connect(attention, (image, image), {}).shape == (None, 4, 3)
    assert connect(keras.layers.Dropout(0.5), (image,), {"training": True}).shape == (None, 4, 3)
