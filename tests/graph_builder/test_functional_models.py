"""A part of a functional model, from tensors anywhere inside it on, is computed by the model's own layers."""

import keras
import numpy as np
import pytest
from keras import layers, ops

from qdq_workbench.graph_builder import function_behind


def numbers(*shape):
    return np.random.default_rng(sum(shape)).normal(size=shape).astype(np.float32)


def test_behind_several_calls_nothing_in_front_is_computed():
    x = keras.Input((4,), name="x")
    y = layers.Dense(3, name="second")(layers.Dense(4, name="first")(x))
    model = keras.Model(x, layers.Dense(2, name="head")(y))
    calls = [len(layer._inbound_nodes) for layer in model.layers]
    given = numbers(5, 3)

    (found,) = function_behind(model, [x, y], model.outputs)([None, given])  # None could not be computed with

    np.testing.assert_array_equal(found, model.get_layer("head")(given))
    assert [len(layer._inbound_nodes) for layer in model.layers][:-1] == calls[:-1]


def test_an_end_that_is_a_start_and_has_no_reader_has_the_value_that_it_was_given():
    x = keras.Input((4,), name="x")
    y = layers.Dense(3, name="dense")(x)
    model = keras.Model(x, y)
    given = numbers(5, 3)

    (found,) = function_behind(model, [x, y], [y])([numbers(5, 4), given])

    assert found is given


@pytest.mark.parametrize("which", [0, 1])
def test_one_of_several_results_of_a_call_is_given_and_the_others_are_computed(which):
    x = keras.Input((4,), name="x")
    parts = ops.split(layers.Dense(4, name="dense")(x), 2, axis=1)
    model = keras.Model(x, layers.Concatenate(name="joined")(parts))
    data, given = numbers(5, 4), numbers(5, 2)
    expected = np.split(np.asarray(model(data)), 2, axis=1)
    expected[which] = given

    (found,) = function_behind(model, [x, parts[which]], model.outputs)([data, given])

    np.testing.assert_array_equal(found, np.concatenate(expected, axis=1))


def test_a_layer_that_is_called_in_front_and_behind_is_computed_behind_alone():
    x = keras.Input((4,), name="x")
    shared = layers.Dense(4, name="shared")
    y = shared(x)
    model = keras.Model(x, shared(layers.ReLU(name="relu")(y)))
    given = numbers(5, 4)

    (found,) = function_behind(model, [x, y], model.outputs)([None, given])

    np.testing.assert_array_equal(found, shared(np.maximum(given, 0)))
