"""Multipliers and shifts are those of gemmlowp and TensorFlow Lite; applied, they are the factors."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from qdq_workbench.errors import ExportError
from qdq_workbench.export.firmware.interpreter import scaled
from qdq_workbench.export.firmware.multipliers import addition, divided, quantize_multiplier

FACTORS = st.floats(min_value=2.0**-30, max_value=2.0**10)


def doubling_high_product(a, b):
    """`SaturatingRoundingDoublingHighMul` of gemmlowp, as it is written there: truncated behind a nudge."""
    product = a * b
    nudged = product + (2**30 if product >= 0 else 1 - 2**30)
    return nudged // 2**31 if nudged >= 0 else -((-nudged) // 2**31)


def divide_by_power(x, exponent):
    """`RoundingDivideByPOT` of gemmlowp."""
    mask = 2**exponent - 1
    return (x >> exponent) + (1 if (x & mask) > (mask >> 1) + (x < 0) else 0)


@given(FACTORS)
def test_a_multiplier_has_31_bits_and_is_half_a_unit_off_at_most(factor):
    multiplier, shift = (int(part) for part in quantize_multiplier(factor))

    assert 2**30 <= multiplier < 2**31
    assert abs(multiplier * 2.0 ** (shift - 31) - factor) <= 2.0 ** (shift - 32)


@given(FACTORS, st.integers(-(2**20), 2**20))
def test_what_applies_it_is_gemmlowps(factor, acc):
    multiplier, shift = (int(part) for part in quantize_multiplier(factor))
    high = doubling_high_product(acc << max(shift, 0), multiplier)

    found = int(scaled(np.int64(acc), multiplier, shift))

    assert found == divide_by_power(high, max(-shift, 0))
    assert abs(found - acc * factor) <= 1.0 + abs(acc * factor) * 2.0**-30


@pytest.mark.parametrize(
    ("factor", "expected"),
    [
        (0.5, (2**30, 0)),
        (1.0, (2**30, 1)),
        (0.75, (3 * 2**29, 0)),
        (1.0 - 2.0**-40, (2**30, 1)),  # rounds up to the next power of two
        (2.0**-33, (0, 0)),
    ],
)
def test_known_factors(factor, expected):
    assert tuple(int(part) for part in quantize_multiplier(factor)) == expected


def test_a_factor_beyond_all_shifts_is_refused():
    with pytest.raises(ExportError, match="shift of 30 bits"):
        quantize_multiplier(2.0**31)


@given(st.floats(min_value=2.0**-16, max_value=2.0**10), st.integers(1, 4096))
def test_a_mean_divides_the_multiplier(factor, count):
    multiplier, shift = divided(*(int(part) for part in quantize_multiplier(factor)), count)

    assert 0 <= multiplier < 2**31
    assert math.isclose(multiplier * 2.0 ** (shift - 31), factor / count, rel_tol=2.0**-28)


@given(st.floats(1e-3, 1.0), st.floats(1e-3, 1.0), st.floats(1e-3, 1.0))
def test_an_addition_brings_both_operands_to_one_scale(one, other, result):
    parts = addition((one, other), result)

    factors = [m * 2.0 ** (s - 31) for m, s in zip(parts["multiplier"], parts["shift"], strict=True)]
    assert math.isclose(factors[0] * factors[2] * 2.0 ** parts["left_shift"], one / result, rel_tol=1e-8)
    assert math.isclose(factors[1] * factors[2] * 2.0 ** parts["left_shift"], other / result, rel_tol=1e-8)
    assert max(factors[:2]) <= 0.5
