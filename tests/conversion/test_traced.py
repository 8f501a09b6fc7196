"""Functions that are traced once per signature, and again only for sizes that the signature leaves to the call."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from qdq_workbench.conversion.engine.traced import traced


@pytest.mark.parametrize(
    ("shape", "traces"),
    [((None, 3), 1), ((2, 3), 2), ((None, None), 2)],
    ids=["open batch", "fixed batch", "open sequence"],
)
def test_batches_of_any_size_with_as_few_traces_as_can_be(shape, traces):
    seen = []

    def double(inputs):
        seen.append(inputs[0].shape)
        return inputs[0] * 2

    run = traced(double, [keras.Input(batch_shape=shape)])
    for rows in (2, 5, 2, 5):
        batch = np.arange(3.0 * rows).reshape(rows, 3)  # float64: cast to the signature's type
        found = run([batch])
        assert found.dtype == tf.float32
        np.testing.assert_array_equal(found, batch * 2)
    assert len(seen) == traces


def test_scalars():
    assert float(traced(lambda a, b: a + b, tf.constant(1.0), tf.constant(2.0))(3.0, 4.0)) == 7.0


@pytest.mark.parametrize(("needs_sizes", "traces"), [(False, 2), (True, 6)])
def test_sequences_of_many_lengths_share_a_trace_unless_a_layer_must_know_them(needs_sizes, traces):
    seen = []

    def double(inputs):
        if needs_sizes and inputs[0].shape[1] is None:
            raise ValueError("all sizes but the batch's must be known")
        seen.append(inputs[0].shape)
        return inputs[0] * 2

    run = traced(double, [keras.Input((None,))])
    for length in (2, 3, 4, 5, 6, 7, 3, 2):
        batch = np.ones((2, length), "float32")
        np.testing.assert_array_equal(run([batch]), batch * 2)
    assert len(seen) == traces


def test_a_layer_of_all_steps_is_called_for_every_step_of_sequences_of_many_lengths():
    layer = keras.layers.TimeDistributed(keras.layers.Dense(3, bias_initializer="normal"))
    sequences = keras.Input((None, 4))
    run = traced(keras.Model(sequences, layer(sequences)), sequences)
    for samples, steps in ((2, 5), (2, 4), (7, 3), (3, 7), (1, 1)):
        batch = np.random.default_rng(steps).normal(size=(samples, steps, 4)).astype("float32")
        np.testing.assert_allclose(run(batch), layer.layer(batch), rtol=1e-5, atol=1e-6)
