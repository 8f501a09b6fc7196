"""Rounding up or down on a grid that does not move."""

import keras
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from qdq_workbench.post_training.rounding.weights import LearnedWeight
from qdq_workbench.quantizers import numerics
from qdq_workbench.spec.quantizer_spec import QuantizerSpec

SPECS = st.builds(
    QuantizerSpec,
    num_bits=st.integers(2, 8),
    signed=st.booleans(),
    symmetric=st.booleans(),
    narrow_range=st.booleans(),
    axis=st.sampled_from([None, -1, 0]),
)
VALUES = arrays.arrays(np.float32, (4, 3), elements=st.floats(-4, 4, width=32))


def weight_of(values, spec, ends=None):
    qparams = numerics.qparams_from_range(*(ends or numerics.weight_range(values, spec)), spec)
    return LearnedWeight("layer/kernel", keras.Variable(values), qparams, own_range=ends is None)


@settings(deadline=None, max_examples=60)
@given(values=VALUES, spec=SPECS, states=arrays.arrays(np.float32, (4, 3), elements=st.floats(-5, 5, width=32)))
def test_any_rounding_keeps_the_grid_of_a_weight(values, spec, states):
    weight = weight_of(values, spec)
    rounded = weight.rounded(states)
    assert numerics.qparams_from_range(*numerics.weight_range(rounded, spec), spec) == weight.qparams
    nearest, codes = (numerics.quantize(array, weight.qparams).astype(int) for array in (values, rounded))
    assert np.abs(codes - nearest).max() <= 1
    again = numerics.fake_quantize(rounded, weight.qparams)
    inside = (rounded != values.min()) & (rounded != values.max()) if spec.axis is None else np.zeros((4, 3), bool)
    where = (
        np.ones((4, 3), bool) if spec.symmetric else inside
    )  # the ends of an asymmetric range need not be on its grid
    np.testing.assert_allclose(rounded[where], again[where], rtol=1e-6, atol=1e-30)
    assert weight.changed(rounded) == (codes != nearest).sum()


@settings(deadline=None, max_examples=30)
@given(values=VALUES, states=arrays.arrays(np.float32, (4, 3), elements=st.floats(-5, 5, width=32)))
def test_values_outside_of_a_kept_range_saturate(values, states):
    spec = QuantizerSpec(num_bits=4)
    weight = weight_of(values, spec, (np.float32(-1.0), np.float32(1.0)))
    codes = numerics.quantize(weight.rounded(states), weight.qparams)
    outside = np.abs(values) > 1.2
    assert (codes[outside] == numerics.quantize(values, weight.qparams)[outside]).all()


def test_it_starts_at_the_float_weight():
    values = np.random.default_rng(0).normal(size=(8, 4)).astype("float32")
    weight = weight_of(values, QuantizerSpec(num_bits=4, narrow_range=True, axis=-1))
    off = np.abs(weight.soft(weight.start).numpy() - values) / weight.qparams.scale
    assert off.max() < 0.011
    codes = numerics.quantize(weight.rounded(weight.start), weight.qparams)
    assert (codes == numerics.quantize(values, weight.qparams)).all()
    assert weight.free == values.size - 4  # the largest of every channel


@pytest.mark.parametrize("values", [np.zeros((3, 2)), np.eye(3), np.array([[1.0, -7.0], [3.0, 7.0]])])
def test_values_on_the_grid_are_not_free(values):
    weight = weight_of(values.astype("float32"), QuantizerSpec(num_bits=4))
    assert weight.free == 0
    assert (weight.rounded(weight.start) == values).all()
