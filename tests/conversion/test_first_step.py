"""The first step of training is traced once: TensorFlow traces a function that makes variables a second time."""

import keras
import numpy as np
import pytest
from keras import layers
from small_models import dtype_policy

import qdq_workbench as qdq

SAMPLES = np.random.default_rng(0).normal(size=(8, 4)).astype("float32")
TARGETS = np.zeros((8, 2), "float32")


class Other(keras.Model):
    """Trains a variable that is not among the model's, as its optimizer must not be told beforehand."""

    def train_step(self, data):
        self.optimizer.apply([self.others[0] * 0.0 + 1.0], self.others)
        return {"loss": self.others[0]}


@pytest.fixture
def traces(monkeypatch):
    """The steps of training that are traced."""
    found = []
    step = keras.Model.train_step

    def counted(self, data):
        found.append(self)
        return step(self, data)

    monkeypatch.setattr(keras.Model, "train_step", counted)
    return found


def quantized(kind=keras.Model):
    image = keras.Input((4,), name="image")
    model = kind(image, layers.Dense(2, name="head")(layers.Dense(3, "relu", name="first")(image)))
    q_model = qdq.quantize_model(model)
    qdq.calibrate(q_model, SAMPLES, verbose=False)
    return q_model


@pytest.mark.parametrize("policy", ["float32", "mixed_float16"])
def test_a_step_is_traced_once_and_trains_as_ever(traces, policy):
    with dtype_policy(policy):
        q_model = quantized()
    q_model.get_layer("quant_first").trainable = False
    q_model.compile("adam", "mse")
    before = [variable.numpy() for variable in q_model.trainable_variables]
    q_model.fit(SAMPLES, TARGETS, batch_size=4, verbose=0)
    assert len(traces) == 1
    assert any(np.any(v.numpy() != old) for v, old in zip(q_model.trainable_variables, before, strict=True))
    inner = getattr(q_model.optimizer, "inner_optimizer", q_model.optimizer)
    assert len(inner._trainable_variables) == len(q_model.trainable_variables)
    assert int(inner.iterations.numpy()) == 2


def test_an_optimizer_that_is_built_already_keeps_its_state(traces):
    q_model = quantized()
    q_model.compile("adam", "mse")
    q_model.train_on_batch(SAMPLES, TARGETS)
    moments = [variable.numpy() for variable in q_model.optimizer.variables]
    q_model.make_train_function(force=True)
    for variable, kept in zip(q_model.optimizer.variables, moments, strict=True):
        np.testing.assert_array_equal(variable.numpy(), kept)


def test_steps_of_the_users_own_may_train_other_variables():
    q_model = quantized(Other)
    q_model.others = [keras.Variable(1.0, name="other")]
    q_model.compile(keras.optimizers.SGD(0.5))
    q_model.fit(SAMPLES, TARGETS, batch_size=8, verbose=0)
    assert float(q_model.others[0].numpy()) == 0.5
