"""Losses that layers with quantized weights add while they are called."""

import keras
import numpy as np
import pytest
from keras import layers

import qdq_workbench as qdq

X = np.random.default_rng(0).normal(size=(8, 4)).astype(np.float32)
ZEROS = np.zeros((8, 2), np.float32)


@keras.saving.register_keras_serializable("tests_of_losses")
class Spread(layers.Dense):
    """A layer whose code adds a loss."""

    def call(self, inputs, training=None):
        outputs = super().call(inputs, training=training)
        self.add_loss(keras.ops.var(outputs))
        return outputs


@pytest.fixture(scope="module")
def models():
    """Return a model with quantized weights only, and the float model that computes with the same values."""
    shared = layers.Dense(4, activity_regularizer="l2", kernel_regularizer="l2", name="shared")
    x = keras.Input((4,), name="x")
    q_model = qdq.quantize_model(keras.Model(x, Spread(2, name="spread")(shared(shared(x)))))
    for pair in q_model.activation_quantizers:
        pair.enabled.assign(False)
    baked = qdq.strip(q_model, bake_weights=True)
    # The regularizer of a weight is the float weight's, in training and otherwise.
    baked.get_layer("shared").kernel.regularizer = None
    return q_model, baked


def added(model, **arguments):
    model(X, **arguments)
    return sorted(float(loss) for loss in model.losses)


def of_the_weight(q_model):
    kernel = q_model.get_layer("quant_shared").layer.kernel
    return float(kernel.regularizer(kernel))


@pytest.mark.parametrize("training", [False, True])
def test_a_call_adds_what_the_float_model_of_these_weights_adds(models, training):
    q_model, baked = models
    expected = sorted([*added(baked), of_the_weight(q_model)])
    assert len(expected) == 4
    for _ in range(2):  # the second call starts anew
        np.testing.assert_allclose(added(q_model, training=training), expected, rtol=1e-5)


def test_switched_off_they_are_the_float_models(models):
    q_model, _ = models
    float_model = qdq.strip(q_model)
    q_model.quantization_enabled = False
    np.testing.assert_allclose(added(q_model), added(float_model), rtol=1e-6)
    q_model.quantization_enabled = True
    for pair in q_model.activation_quantizers:
        pair.enabled.assign(False)


def test_training_minimizes_them(models):
    q_model, baked = models
    for model in (q_model, baked):
        model.compile(keras.optimizers.SGD(0.0), loss=lambda _, outputs: 0.0 * keras.ops.sum(outputs))
    expected = sum(added(baked)) + of_the_weight(q_model)
    history = q_model.fit(X, ZEROS, batch_size=8, epochs=2, verbose=0).history["loss"]
    np.testing.assert_allclose(history, [expected] * 2, rtol=1e-5)
    np.testing.assert_allclose(q_model.evaluate(X, ZEROS, verbose=0), expected, rtol=1e-5)


def test_an_enclosing_scope_collects_them_once_or_not_at_all(models):
    q_model, baked = models
    values = [(variable, variable.value) for variable in q_model.variables]
    with keras.StatelessScope(values, collect_losses=True) as scope:
        found = added(q_model)
    np.testing.assert_allclose(found, sorted([*added(baked), of_the_weight(q_model)]), rtol=1e-5)
    assert len(scope.losses) == 3
    with keras.StatelessScope(values) as scope:
        q_model(X)
    assert not scope.losses
