"""What a nested model is told about training when it is called holds for the layers in it, in the copies too."""

import keras
import numpy as np
import pytest
from keras import layers
from small_models import shake

import qdq_workbench as qdq


def nested(told):
    keras.utils.set_random_seed(0)
    inside = keras.Input((3,))
    inner = keras.Model(inside, layers.BatchNormalization(name="norm")(inside), name="inner")
    source = keras.Input((3,), name="source")
    return shake(keras.Model(source, layers.Dense(2, name="head")(inner(source, **told))))


@pytest.mark.parametrize("training", [None, False, True])  # Keras asks the nested call only where this one says nothing
@pytest.mark.parametrize("told", [{"training": True}, {"training": False}, {}], ids=["on", "off", "as called"])
def test_the_copy_computes_what_the_model_does(told, training):
    model = nested(told)
    x = np.random.default_rng(0).normal(2.0, 3.0, (16, 3)).astype(np.float32)
    copy = qdq.quantize_model(model)
    copy.quantization_enabled = False
    how = {} if training is None else {"training": training}
    np.testing.assert_allclose(copy(x, **how), model(x, **how), atol=1e-5)


@pytest.mark.parametrize("training", [None, False, True])
@pytest.mark.parametrize("told", [{"training": True}, {"training": False}, {}], ids=["on", "off", "as called"])
def test_the_copy_drops_values_where_the_model_does(told, training):
    """Keras notes the default of a dropout, `training=False`, at its call, which the argument of the model replaces."""
    inside = keras.Input((400,))
    inner = keras.Model(inside, layers.Dropout(0.5, name="drop")(inside), name="inner")
    source = keras.Input((400,), name="source")
    model = keras.Model(source, inner(source, **told))
    copy = qdq.quantize_model(model)
    copy.quantization_enabled = False
    how = {} if training is None else {"training": training}
    dropped = [bool((each(np.ones((2, 400), np.float32), **how).numpy() == 0).any()) for each in (model, copy)]
    assert dropped[0] == dropped[1] == (told.get("training", False) if training is None else training)


def test_the_two_ways_differ_on_these_data():
    x = np.random.default_rng(0).normal(2.0, 3.0, (16, 3)).astype(np.float32)
    on, off = (nested({"training": told})(x).numpy() for told in (True, False))
    assert np.abs(on - off).max() > 0.1
