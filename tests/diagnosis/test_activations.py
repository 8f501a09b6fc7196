"""Causes at activations: inputs without values, and fixes where the calibration data are the cause."""

from __future__ import annotations

import keras
import numpy as np
import pytest

import qdq_workbench as qdq
from qdq_workbench.diagnosis.fixes import keep_in_float

LAYERS = keras.layers


def two_inputs():
    keras.utils.set_random_seed(0)
    image, mask = keras.Input((8,), name="image"), keras.Input((4,), name="mask")
    hidden = LAYERS.Dense(8, activation="relu", name="first")(LAYERS.Concatenate(name="both")([image, mask]))
    return keras.Model([image, mask], LAYERS.Dense(4, name="head")(hidden))


def test_an_input_of_zeros_in_both_data_sets_is_no_cause():
    x = np.random.default_rng(0).normal(size=(128, 8)).astype("float32")
    data = {"image": x, "mask": np.zeros((128, 4), "float32")}
    found = qdq.diagnose(two_inputs(), data, verbose=False)
    assert found.causes
    assert "data_range" not in [cause.kind for cause in found.causes]


@pytest.mark.parametrize(
    ("kind", "taken", "factor", "bias"),
    [("few_samples", 2, 0.7, 0.0), ("data_range", 128, 0.01, 0.0), ("wide_range", 128, 3.0, -1.5)],
)
def test_fixes_of_calibration_data_gain_where_the_same_data_are_given_again(kind, taken, factor, bias):
    keras.utils.set_random_seed(0)
    image = keras.Input((8,), name="image")
    first = LAYERS.Dense(8, activation="relu", name="first")
    model = keras.Model(image, LAYERS.Dense(4, name="head")(first(image)))
    first.bias.assign(np.full(8, bias, "float32"))
    x = np.random.default_rng(0).normal(size=(128, 8)).astype("float32")
    found = qdq.diagnose(model, x, calibration_data=x[:taken] * factor, verbose=False)
    cause = next(each for each in found.causes if each.kind == kind)
    fixed = found.apply(cause, verbose=False)
    assert cause.gain > 1.0  # dB
    # What is calibrated after it keeps its data.
    once_more = found.apply(cause, cause, verbose=False)
    assert once_more.activation_ranges() == fixed.activation_ranges()


def test_calibration_data_that_can_be_read_once_serve_all_fixes():
    x = np.random.default_rng(0).normal(size=(64, 8)).astype("float32")
    keras.utils.set_random_seed(0)
    image = keras.Input((8,), name="image")
    model = keras.Model(image, LAYERS.Dense(4, name="head")(image))
    found = qdq.diagnose(model, x, calibration_data=(x[i : i + 16] for i in range(0, 64, 16)), verbose=False)
    found.apply(verbose=False)
    assert all(cause.gain is not None for cause in found.causes)


@pytest.mark.parametrize(("text", "says"), [("", "leave a, b in float"), ("leave the sum in float", None)])
def test_a_fix_that_leaves_layers_in_float_says_so_or_what_it_is_told_to_say(text, says):
    assert keep_in_float([("b", "input 0"), ("a", "weight"), ("b", "weight")], text).text == (says or text)
