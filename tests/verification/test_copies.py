"""Copies of samples run together where that gives the outputs of each copy, and one by one elsewhere."""

import keras
import numpy as np
import pytest
from keras import layers
from small_models import residual_net, samples

import qdq_workbench as qdq
from qdq_workbench.verification.copies import run_copies


class Centered(layers.Layer):
    """Mixes the samples of a batch."""

    def call(self, inputs):
        return inputs - keras.ops.mean(inputs, axis=0)


class BesideTheFirst(layers.Layer):
    """Leaves the first sample as it is, whatever the others are."""

    def call(self, inputs):
        return inputs + inputs[:1]


def dense(*own, **batch):
    image = x = keras.Input(name="image", **batch)
    for layer in own:
        x = layer(x)
    return keras.Model(image, layers.Dense(2, name="head")(x))


@pytest.mark.parametrize(
    ("make", "calls"),
    [
        (residual_net, [16]),
        (lambda: dense(Centered(name="centered"), shape=(3,)), [16, 4, 4, 4]),
        (lambda: dense(BesideTheFirst(name="beside"), shape=(3,)), [16, 4, 4, 4]),
        (lambda: dense(batch_shape=(4, 3)), [4, 4, 4]),
    ],
    ids=["together", "mixing", "mixing behind", "fixed"],
)
def test_every_copy_has_the_outputs_that_it_has_alone(make, calls):
    model = make()
    q_model = qdq.quantize_model(model)
    given = samples(model, 4).astype("float32")
    qdq.calibrate(q_model, given, verbose=False)
    sizes = []

    def predict(inputs):
        sizes.append(len(inputs[0]))
        return [np.asarray(q_model(inputs[0], training=False))]

    copies = [[given * np.float32(factor)] for factor in (0.3, 0.5, 0.8)]
    wanted, *alone = [predict(inputs) for inputs in ([given], *copies)]
    sizes.clear()
    found = run_copies(q_model, predict, [given], wanted, copies)
    assert sizes == calls
    np.testing.assert_allclose(np.asarray(found), np.asarray(alone), rtol=1e-6, atol=1e-6)
