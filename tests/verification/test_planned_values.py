"""The arithmetic of the comparison with planned values, with stand-ins for the model."""

import types

import keras
import numpy as np
import pytest

from qdq_workbench.spec.quantizer_spec import QuantizerSpec
from qdq_workbench.verification import planned_values
from qdq_workbench.verification.planned_values import PlannedValues, _input_scales

VALUES = np.float32([[0.5, -1.0], [2.0, 0.25]])


def difference(theirs, *, ours=VALUES, scales=(0.5,), steps=0.5, most_raised=0.0):
    theirs = np.asarray(theirs, np.float32)
    planned = PlannedValues(None, ours, np.asarray(scales), np.zeros(1), 0.0)
    return planned_values.difference(planned, np.sort(theirs, axis=None), np.float32(steps), most_raised)


class TestDifference:
    def test_values_are_compared_in_any_layout(self):
        assert difference(VALUES.T) == ""
        assert difference(VALUES.reshape(-1)[::-1]) == ""

    def test_another_number_of_values(self):
        assert difference(VALUES[0]) == "it holds 2 values, and the model's 4"
        assert difference([], ours=np.zeros((0, 2), np.float32), scales=[]) == ""

    def test_values_may_differ_by_what_float32_rounds(self):
        assert difference(VALUES * np.float32(1 + 5e-7)) == ""
        assert difference(VALUES * np.float32(1 + 2**-19)) == "4 of 4 values are not the model's, by up to 3.81e-06"
        assert difference(VALUES + np.float32(4e-7)).startswith("2 of 4")  # it is more than that of the smaller ones
        assert difference([1e-37, 0], ours=np.zeros(2, np.float32)) == ""

    def test_only_the_values_that_differ_are_counted(self):
        assert difference([[0.5, -1.0], [2.0, 0.3]]).startswith("1 of 4 values")

    def test_half_of_a_step_that_was_raised_for_a_bias_is_allowed(self):
        moved = VALUES + np.float32([[0.25, 0], [0, 0]])
        assert difference(moved) != ""
        assert difference(moved, most_raised=0.5) != ""  # no step is larger than the model's
        assert difference(moved, scales=(0.25,), most_raised=0.5) == ""
        assert difference(moved, scales=(0.25,), most_raised=0.25) != ""  # no bias asks for that step
        assert difference(moved + np.float32([[0.01, 0], [0, 0]]), scales=(0.25,), most_raised=0.5) != ""

    def test_the_bias_of_the_model_may_ask_for_a_step_too(self):
        moved, steps = VALUES + np.float32([[0.25, 0], [0, 0]]), np.full((2, 2), 0.5, np.float32)
        for raised, told in ((0.5, False), (0.4, True)):
            planned = PlannedValues(None, VALUES, np.asarray([0.25]), np.zeros(1), raised)
            assert bool(planned_values.difference(planned, np.sort(moved, axis=None), steps)) is told

    def test_a_step_of_one_channel_says_nothing_about_larger_ones(self):
        moved = VALUES + np.float32([[0.25, 0], [0, 0]])
        assert difference(moved, scales=(0.25,), steps=[[0.3, 0.3], [9.0, 9.0]], most_raised=0.5) != ""


@pytest.mark.parametrize(
    ("activation", "added"),
    [
        (None, (0.0,)),
        ("silu", (0.0,)),
        ("hard_sigmoid", (0.0, 3.0)),
        (keras.layers.Activation("hard_sigmoid"), (0.0, 3.0)),
        (lambda x: x + 2.0, None),
        (keras.ops.log1p, (0.0, 1.0)),
        (keras.layers.LeakyReLU(), (0.0,)),
        (keras.layers.Rescaling(1.0, offset=2.0), None),
    ],
)
def test_what_an_activation_may_add_to_a_bias(activation, added):
    assert planned_values.activation_begins_with(keras.layers.Dense(1, activation=activation)) == added


def test_a_bias_is_the_models_with_one_of_the_constants_behind_it():
    held = np.float64([4.0, 5.0]), np.zeros(1)
    wanted = np.float64([1.0, 2.0])
    assert planned_values.bias_difference(wanted, wanted, (0.0, 3.0), held) == ""
    assert planned_values.bias_difference(wanted, wanted, (0.0,), held).startswith("2 of 2 values")
    assert planned_values.bias_difference(np.float64([1.0, 5.0]), wanted, (0.0, 3.0), held) != ""  # not one of both


def test_the_scale_of_an_input_is_that_of_every_quantized_call():
    pairs = {"a": types.SimpleNamespace(name="a", quantizer=QuantizerSpec(symmetric=False, signed=False)), "b": None}
    plan = types.SimpleNamespace(
        graph=types.SimpleNamespace(calls=lambda layer: [types.SimpleNamespace(name=name) for name in pairs]),
        input_placement=lambda name, index: pairs[name],
        pair_of=lambda placement: placement,
    )
    assert [float(scale) for scale in _input_scales(plan, "conv", {"a": (0.0, 51.0)})] == [pytest.approx(0.2)]
