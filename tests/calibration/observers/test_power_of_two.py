"""Thresholds and scales that are powers of two."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import specs

from qdq_workbench.calibration.observers.power_of_two import kind_of_rounding, rounded_up
from qdq_workbench.errors import DataError
from qdq_workbench.numerics import qparams_from_range
from qdq_workbench.spec import QuantizerSpec

ENDS = st.tuples(st.floats(-1e6, 0.0), st.floats(1e-6, 1e6))


@given(ENDS)
def test_thresholds_are_the_next_power_of_two(ends):
    low, high = rounded_up(ends, QuantizerSpec())
    largest = max(-ends[0], ends[1])
    assert largest <= high < 2 * largest
    assert math.frexp(high)[0] == 0.5
    assert low == (-high if ends[0] < 0 else 0.0)


@given(ENDS, specs())
def test_scales_are_powers_of_two(ends, spec):
    scale = float(qparams_from_range(*rounded_up(ends, spec, "scale"), spec).scale)
    assert math.frexp(scale)[0] == pytest.approx(0.5, rel=1e-6) or math.frexp(scale)[0] == pytest.approx(1.0, rel=1e-6)


def test_the_grid_is_that_of_mct():
    """Threshold t: signed values from -t to t - t/128, unsigned ones from 0 to t - t/256."""
    unsigned = QuantizerSpec(signed=False, symmetric=False)
    low, high = qparams_from_range(*rounded_up((0.0, 5.0), unsigned, "scale"), unsigned).representable_range
    np.testing.assert_array_equal((low, high), (0.0, 8.0 - 8.0 / 256))
    low, high = qparams_from_range(*rounded_up((-5.0, 3.0), QuantizerSpec(), "scale")).representable_range
    np.testing.assert_array_equal((low, high), (-8.0, 8.0 - 8.0 / 128))
    low, high = qparams_from_range(*rounded_up((-5.0, 3.0), unsigned, "scale"), unsigned).representable_range
    np.testing.assert_array_equal((low, high), (-8.0, 8.0 - 8.0 / 128))


def test_zero_stays_zero():
    assert rounded_up((0.0, 0.0), QuantizerSpec()) == (0.0, 0.0)


@pytest.mark.parametrize(
    ("value", "kind"),
    [(False, None), (None, None), (True, "threshold"), ("threshold", "threshold"), ("scale", "scale")],
)
def test_kinds(value, kind):
    assert kind_of_rounding(value) == kind


def test_unknown_kind():
    with pytest.raises(DataError, match="power_of_two='yes'"):
        kind_of_rounding("yes")
