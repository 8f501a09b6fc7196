"""The range that a weight's quantizer keeps."""

import keras
import numpy as np
import pytest

from qdq_workbench.spec import QuantizerSpec
from qdq_workbench.spec.quantizer_method import QuantizerMethod
from qdq_workbench.wrappers.weight_state import WeightState, tfmot_view


def built(values):
    state = WeightState(QuantizerSpec(), QuantizerMethod("last_value"))
    variable = keras.Variable(np.asarray(values, np.float32), name="kernel")
    state.build("layer/kernel", variable, keras.layers.Layer(name="owner"))
    return state


def test_a_weight_starts_with_the_range_of_its_values():
    low, high = built([[1.0, -2.0]]).range()
    assert (low.item(), high.item()) == (-2.0, 1.0)


@pytest.mark.parametrize("wrong", [np.nan, np.inf, -np.inf])
def test_a_weight_that_is_not_finite_starts_without_a_range(wrong):
    state = built([[1.0, wrong]])
    assert state.range() is None
    assert [float(state.variables[end]) for end in ("min_var", "max_var")] == [np.inf, -np.inf]


@pytest.mark.parametrize(
    ("values", "fields", "ends"),
    [
        ([1.0, -2.0], {}, (-2.0, 2.0)),
        ([1.0, -2.0], {"symmetric": False}, (-2.0, 1.0)),
        ([1.0, 2.0], {"symmetric": False}, (0.0, 2.0)),
        ([-1.0, -2.0], {"symmetric": False}, (-2.0, 0.0)),
    ],
)
def test_tfmot_is_shown_the_range_of_the_grid_of_a_weight_that_keeps_none(values, fields, ends):
    variable = keras.Variable(np.asarray(values, np.float32), name="kernel")
    ((shown, quantizer, held),) = tfmot_view({"kernel": variable}, {"kernel": QuantizerSpec(**fields)}, {})

    assert shown is variable
    assert quantizer.spec == QuantizerSpec(**fields)
    assert (float(held["min_var"]), float(held["max_var"])) == ends
