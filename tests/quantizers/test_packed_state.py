"""Several values of a layer in one variable: each reads and is assigned as one of its own."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from qdq_workbench.quantizers.packed_state import PackedState


@pytest.fixture
def state():
    return PackedState(keras.layers.Layer(), {"on": True, "off": False, "low": float("inf"), "high": 3.0})


def values(state):
    return [np.asarray(state[name]).item() for name in ("on", "off", "low", "high")]


def test_holds_what_it_starts_with_in_one_variable():
    layer = keras.layers.Layer()
    state = PackedState(layer, {"on": True, "low": -0.5})
    assert len(layer.weights) == 1
    assert layer.trainable_weights == []
    assert (state["on"].dtype, state["low"].dtype) == ("bool", "float32")
    assert (bool(state["on"]), float(state["low"])) == (True, -0.5)


def test_assigning_one_value_leaves_the_others(state):
    state["off"].assign(True)
    assert values(state) == [True, True, float("inf"), 3.0]
    state["on"].assign(tf.constant(False))
    state["low"].assign(np.float32(1.5))
    assert values(state) == [False, True, 1.5, 3.0]
    state.assign({"high": 4.0, "low": state["high"]})
    assert values(state) == [False, True, 3.0, 4.0]


def test_what_was_read_stays_at_that(state):
    before = state.read()
    state["high"].assign(9.0)
    assert float(before["high"]) == 3.0
    assert float(state["high"]) == 9.0


def test_reads_anew_at_every_run_of_a_function(state):
    @tf.function
    def both():
        return tf.convert_to_tensor(state["on"]), tf.cast(state.read()["high"], tf.float32) * 2.0

    assert [part.numpy().item() for part in both()] == [True, 6.0]
    state.assign({"on": False, "high": 5.0})
    assert [part.numpy().item() for part in both()] == [False, 10.0]
    assert both.experimental_get_tracing_count() == 1


@pytest.mark.parametrize("jit", [False, True])
def test_is_assigned_within_a_function(state, jit):
    @tf.function(jit_compile=jit)
    def move(by):
        state["high"].assign(tf.convert_to_tensor(state["high"]) + by)

    move(tf.constant(2.0))
    assert values(state) == [True, False, float("inf"), 5.0]
