"""Layers whose `get_config` does not say all: they are copied from what they keep, or named."""

from __future__ import annotations

import keras
import numpy as np
import pytest
from keras import layers

import qdq_workbench as qdq
from qdq_workbench.conversion.engine.configs import config_from_attributes, copy_from_attributes, in_float32
from qdq_workbench.errors import UnsupportedModelError

DATA = np.random.default_rng(0).normal(size=(4, 6)).astype("float32")


@keras.saving.register_keras_serializable("configs")
class Lacking(layers.Layer):
    """Its configuration lacks an argument."""

    def __init__(self, factors, activation=None, **settings):
        super().__init__(**settings)
        self.factors, self.activation = factors, keras.activations.get(activation)

    def get_config(self):
        return super().get_config()

    def call(self, x):
        return self.activation(x * self.factors[0] + self.factors[1])


@keras.saving.register_keras_serializable("configs")
class Surplus(Lacking):
    """Its configuration holds what is no argument."""

    def get_config(self):
        return {**super().get_config(), "factors": self.factors, "never_an_argument": 1}


@keras.saving.register_keras_serializable("configs")
class Failing(Lacking):
    """Its configuration cannot be made."""

    def get_config(self):
        return {**super().get_config(), "factors": self.nowhere}


class Changed(Lacking):
    """What it keeps is not what it was given."""

    def __init__(self, factors, **settings):
        super().__init__([2 * factor for factor in factors], **settings)


class Hidden(Lacking):
    """What it was given is kept nowhere."""

    def __init__(self, scale, **settings):
        super().__init__([scale, 0.0], **settings)


def model_with(layer):
    x = keras.Input((6,), name="x")
    return keras.Model(x, layers.Dense(2, name="head")(layer(x)))


@pytest.mark.parametrize("kind", [Lacking, Surplus, Failing])
def test_a_layer_is_copied_from_what_it_keeps_and_saved_twice(kind, tmp_path):
    model = model_with(kind([3.0, 0.5], "tanh", name="own"))
    q_model = qdq.quantize_model(model)
    qdq.calibrate(q_model, DATA, verbose=False)
    np.testing.assert_array_equal(qdq.strip(q_model)(DATA), model(DATA))
    expected = np.asarray(q_model(DATA))
    for number in range(2):
        q_model.save(tmp_path / f"{number}.keras")
        q_model = keras.models.load_model(tmp_path / f"{number}.keras")
        np.testing.assert_array_equal(q_model(DATA), expected)


@pytest.mark.parametrize("layer", [Changed([3.0, 0.5], name="own"), Hidden(3.0, name="own")])
def test_a_layer_that_keeps_something_else_is_named_with_a_way_out(layer):
    with pytest.raises(
        UnsupportedModelError, match=r"'own' cannot be copied.*get_config that returns every argument"
    ) as caught:
        qdq.quantize_model(model_with(layer))
    assert 'the page "Custom layer"' in str(caught.value)


def test_a_layer_whose_attributes_do_not_make_a_copy_is_saved_as_it_says_itself():
    @keras.saving.register_keras_serializable("configs")
    class Scoped(Lacking):
        """Its configuration makes a copy only where the user says what it stands for."""

        known = True

        @classmethod
        def from_config(cls, config):
            if not cls.known:
                raise ValueError("unknown")
            return cls([3.0, 0.5], **config)

    q_model = qdq.quantize_model(model_with(Scoped([3.0, 0.5], name="own")))
    before = q_model.get_config()
    Scoped.known = False
    assert q_model.get_config()["layers"] == before["layers"]


def test_the_reason_names_the_argument():
    with pytest.raises(ValueError, match="'scale' of its constructor is kept under no attribute"):
        copy_from_attributes(Hidden(3.0), "copy")
    with pytest.raises(ValueError, match="'factors'"):
        copy_from_attributes(Changed([3.0, 0.5]), "copy")


def test_a_layer_of_keras_that_writes_no_configuration_is_copied(tmp_path):
    model = model_with(layers.Identity(dtype=keras.DTypePolicy("float32"), name="own"))
    with pytest.raises(NotImplementedError):
        model.get_layer("own").get_config()
    q_model = qdq.quantize_model(model)
    qdq.calibrate(q_model, DATA, verbose=False)
    q_model.save(tmp_path / "q.keras")
    np.testing.assert_array_equal(keras.models.load_model(tmp_path / "q.keras")(DATA), q_model(DATA))


def test_what_is_kept_under_the_name_of_an_argument_or_behind_an_underscore_is_found():
    class Private(layers.Layer):
        def __init__(self, scale, shift=1.0, **settings):
            super().__init__(**settings)
            self._scale, self.shift = scale, shift

        def get_config(self):
            return super().get_config()

    config = config_from_attributes(Private(3.0, name="own"))
    assert (config["name"], config["scale"], config["shift"]) == ("own", 3.0, 1.0)


@pytest.mark.parametrize("name", ["float64", "float32", "bfloat16", "mixed_float16"])
def test_a_configuration_in_float32_has_no_other_precision_at_any_depth(name):
    def policy(name):
        return {"class_name": "DTypePolicy", "config": {"name": name}}

    def config(name):
        return {"units": 2, "dtype": policy(name), "cells": [{"dtype": policy(name)}, ("relu", policy("int32"))]}

    assert in_float32(config(name)) == config("float32")
