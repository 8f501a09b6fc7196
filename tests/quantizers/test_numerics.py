"""The arithmetic of the grids, on arrays."""

import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from one_node import run_node
from strategies import SHAPE, qparams, ranges, specs, values_for

from qdq_workbench import numerics
from qdq_workbench.errors import DataError, QuantizerError
from qdq_workbench.quantizers.blocks import other_axes, spread
from qdq_workbench.quantizers.numerics import storage_dtype
from qdq_workbench.spec.quantizer_spec import QuantizerSpec

SEEDS = st.integers(0, 2**32 - 1)


class TestProperties:
    @given(qparams(), SEEDS)
    def test_fake_quantize_is_dequantize_of_quantize_bit_for_bit(self, params, seed):
        x = values_for(params, seed)
        direct = numerics.fake_quantize(x, params)
        composed = numerics.dequantize(numerics.quantize(x, params), params)
        assert direct.dtype == np.float32
        np.testing.assert_array_equal(direct.view(np.uint32), composed.view(np.uint32))

    @given(qparams(), SEEDS)
    def test_follows_the_written_equations(self, params, seed):
        x = values_for(params, seed)
        scale, zero_point = (spread(v, SHAPE, params.spec) for v in (params.scale, params.zero_point))
        # float64 quotients rounded to float32 are correctly rounded float32 quotients
        quotient = (x.astype(np.float64) / scale.astype(np.float64)).astype(np.float32)
        expected = np.clip(np.round(quotient.astype(np.float64)) + zero_point, params.spec.qmin, params.spec.qmax)
        np.testing.assert_array_equal(numerics.quantize(x, params), expected)

    @given(qparams(), SEEDS)
    def test_is_idempotent(self, params, seed):
        once = numerics.fake_quantize(values_for(params, seed), params)
        np.testing.assert_array_equal(numerics.fake_quantize(once, params), once)

    @given(qparams(), SEEDS)
    def test_codes_stay_on_the_grid_and_reach_both_ends(self, params, seed):
        codes = numerics.quantize(values_for(params, seed), params)
        assert codes.dtype == storage_dtype(params.spec)
        assert codes.min() >= params.spec.qmin
        assert codes.max() <= params.spec.qmax
        assert (numerics.quantize(np.full(SHAPE, -np.inf), params) == params.spec.qmin).all()
        assert (numerics.quantize(np.full(SHAPE, np.inf), params) == params.spec.qmax).all()

    @given(qparams(), SEEDS)
    def test_error_is_half_a_step_inside_the_representable_range(self, params, seed):
        x = values_for(params, seed)
        low, high = (spread(end, SHAPE, params.spec) for end in params.representable_range)
        inside = (x >= low) & (x <= high)
        step = np.broadcast_to(spread(params.scale, SHAPE, params.spec), SHAPE).astype(np.float64)
        error = np.abs(numerics.fake_quantize(x, params).astype(np.float64) - x)
        rounding = 2.0**-22 * np.abs(x)
        assert (error[inside] <= 0.5 * step[inside] + rounding[inside]).all()

    @given(qparams(), SEEDS)
    def test_outside_it_saturates_to_the_ends(self, params, seed):
        x = values_for(params, seed)
        low, high = (np.broadcast_to(spread(end, SHAPE, params.spec), SHAPE) for end in params.representable_range)
        y = numerics.fake_quantize(x, params)
        np.testing.assert_array_equal(y[x < low], low[x < low])
        np.testing.assert_array_equal(y[x > high], high[x > high])

    @given(qparams())
    def test_zero_is_exact(self, params):
        zeros = np.zeros(SHAPE, np.float32)
        codes = numerics.quantize(zeros, params).astype(np.int32)
        np.testing.assert_array_equal(codes, np.broadcast_to(spread(params.zero_point, SHAPE, params.spec), SHAPE))
        np.testing.assert_array_equal(numerics.fake_quantize(zeros, params), zeros)

    @given(specs(), ranges())
    def test_the_grid_covers_the_range_up_to_half_a_step(self, spec, bounds):
        params = numerics.qparams_from_range(*bounds, spec)
        low, high = (float(end) for end in params.representable_range)
        slack = 0.5 * float(params.scale) * (1 + 1e-3)
        if spec.symmetric and spec.narrow_range:
            slack = float(params.scale) * 1e-2
        assert low <= min(float(bounds[0]), 0.0) + slack
        assert high >= max(float(bounds[1]), 0.0) - slack

    @given(specs(), ranges())
    def test_scales_are_positive_and_finite(self, spec, bounds):
        params = numerics.qparams_from_range(*bounds, spec)
        assert params.scale.dtype == np.float32
        assert params.zero_point.dtype == np.int32
        assert params.scale.shape == params.zero_point.shape == ()
        assert np.isfinite(params.scale)
        assert params.scale > 0

    @given(specs(), ranges())
    def test_signed_and_unsigned_grids_hold_the_same_values(self, spec, bounds):
        signed = numerics.qparams_from_range(*bounds, spec.replace(signed=True))
        unsigned = numerics.qparams_from_range(*bounds, spec.replace(signed=False))
        np.testing.assert_array_equal(signed.scale, unsigned.scale)
        assert unsigned.zero_point - signed.zero_point == 2 ** (spec.num_bits - 1)

    @given(specs((0, 1, -1)), st.data())
    def test_per_axis_is_per_tensor_for_each_slice(self, spec, data):
        low, high = data.draw(ranges((SHAPE[spec.axis],)))
        params = numerics.qparams_from_range(low, high, spec)
        x = values_for(params, data.draw(SEEDS))
        for index in range(SHAPE[spec.axis]):
            single = numerics.qparams_from_range(low[index], high[index], spec.replace(axis=None))
            expected = numerics.quantize(np.take(x, index, spec.axis), single)
            np.testing.assert_array_equal(np.take(numerics.quantize(x, params), index, spec.axis), expected)

    @given(specs((None, 0, 1, -1)), SEEDS)
    def test_no_weight_saturates_on_a_symmetric_grid_of_its_own_range(self, spec, seed):
        spec = spec.replace(symmetric=True)
        w = np.random.default_rng(seed).normal(size=SHAPE).astype(np.float32)
        params = numerics.qparams_from_range(*numerics.weight_range(w, spec), spec)
        steps = numerics.quantize(w, params).astype(np.int64) - spread(params.zero_point, SHAPE, spec)
        assert np.abs(steps).max() == 2 ** (spec.num_bits - 1) - 1


class TestFormulas:
    @pytest.mark.parametrize("narrow", [False, True])
    @pytest.mark.parametrize("signed", [False, True])
    @pytest.mark.parametrize("bits", [2, 4, 8, 16])
    def test_symmetric(self, bits, signed, narrow):
        params = numerics.qparams_from_range(-3.0, 1.5, num_bits=bits, signed=signed, narrow_range=narrow)
        assert params.scale == np.float32(3.0) / np.float32(2 ** (bits - 1) - 1)
        assert params.zero_point == (0 if signed else 2 ** (bits - 1))

    @pytest.mark.parametrize(
        ("low", "high", "fields", "scale", "zero_point"),
        [
            (0.0, 25.5, {"signed": False}, 25.5 / 255, 0),
            (-1.0, 254.0, {"signed": False}, 1.0, 1),
            (-1.0, 254.0, {"signed": True}, 1.0, -127),
            (-127.5, 127.5, {"signed": False}, 1.0, 128),  # 127.5 rounds away from zero
            (-127.5, 127.5, {"signed": True}, 1.0, 0),
            (-126.5, 128.5, {"signed": False}, 1.0, 127),  # and so does 126.5, half to even would give 126
            (-1.0, 253.0, {"signed": False, "narrow_range": True}, 1.0, 2),
            (-8.0, 0.0, {"signed": True, "num_bits": 4}, 8 / 15, 7),
            (2.0, 5.1, {"signed": False}, 5.1 / 255, 0),  # extended to contain 0
            (-5.1, -2.0, {"signed": False}, 5.1 / 255, 255),
        ],
    )
    def test_asymmetric(self, low, high, fields, scale, zero_point):
        params = numerics.qparams_from_range(low, high, symmetric=False, **fields)
        np.testing.assert_allclose(params.scale, scale, rtol=1e-6)
        assert params.zero_point == zero_point

    def test_rounds_half_to_even(self):
        params = numerics.qparams_from_range(-127.0, 127.0)
        codes = numerics.quantize([-2.5, -1.5, -0.5, 0.5, 1.5, 2.5, 126.5], params)
        assert codes.tolist() == [-2, -2, 0, 0, 2, 2, 126]

    def test_wide_symmetric_reaches_its_lowest_code_by_saturation_only(self):
        params = numerics.qparams_from_range(-127.0, 127.0)
        assert numerics.quantize([-127.0, -500.0], params).tolist() == [-127, -128]

    @pytest.mark.parametrize("value", [0.0, 1e-45, 1e-40, 1e-35, 3e-31])
    @pytest.mark.parametrize("symmetric", [False, True])
    def test_a_zero_or_denormal_range_has_a_small_scale(self, value, symmetric):
        params = numerics.qparams_from_range(-value, value, symmetric=symmetric)
        assert params.scale == 2.0**-10
        assert (numerics.fake_quantize([-value, 0.0, value], params) == 0.0).all()

    def test_an_all_zero_channel_leaves_the_others_alone(self):
        w = np.array([[0.0, 1.27], [0.0, -0.5]], np.float32)
        spec = QuantizerSpec(axis=-1, narrow_range=True)
        params = numerics.qparams_from_range(*numerics.weight_range(w, spec), spec)
        np.testing.assert_allclose(params.scale, [2.0**-10, 0.01], rtol=1e-6)
        assert numerics.quantize(w, params).tolist() == [[0, 127], [0, -50]]

    def test_ranges_per_slice_without_an_axis_mean_the_last_one(self):
        assert numerics.qparams_from_range([-1.0, -2.0], [1.0, 2.0]).spec.axis == -1

    def test_spec_fields_replace_those_of_the_spec(self):
        assert numerics.qparams_from_range(-1, 1, QuantizerSpec(num_bits=4), signed=False).spec == QuantizerSpec(
            num_bits=4, signed=False
        )

    @pytest.mark.parametrize("axis", [None, 0, 1, 2, -1])
    def test_weight_range(self, axis):
        w = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
        low, high = numerics.weight_range(w, QuantizerSpec(axis=axis))
        others = other_axes(3, axis)
        np.testing.assert_array_equal(low, w.min(others))
        np.testing.assert_array_equal(high, w.max(others))
        assert low.shape == (() if axis is None else (w.shape[axis],))


class TestRefusals:
    @pytest.mark.parametrize(
        "bounds",
        [(np.nan, 1.0), (0.0, np.nan), (-np.inf, 1.0), (0.0, np.inf), (1.0, -1.0), (-1e38, 1.0), (0.0, 1e38)],
    )
    def test_bad_ranges(self, bounds):
        with pytest.raises(DataError, match="Received: minimum="):
            numerics.qparams_from_range(*bounds)

    def test_an_uncalibrated_range(self):
        with pytest.raises(DataError):
            numerics.qparams_from_range(np.inf, -np.inf)

    def test_ranges_of_two_shapes(self):
        with pytest.raises(DataError):
            numerics.qparams_from_range([0.0, 0.0], [1.0, 1.0, 1.0])

    def test_nan_has_no_code(self):
        with pytest.raises(DataError, match="NaN"):
            numerics.quantize([0.0, np.nan], numerics.qparams_from_range(-1, 1))

    def test_tensor_that_does_not_fit_the_scales(self):
        params = numerics.qparams_from_range([-1.0, -1.0], [1.0, 1.0], axis=0)
        with pytest.raises(DataError, match="slices on axis 0"):
            numerics.quantize(np.zeros((3, 2)), params)

    @pytest.mark.parametrize("value", [np.nan, np.inf])
    def test_weights_without_a_range(self, value):
        with pytest.raises(DataError):
            numerics.weight_range([0.0, value], QuantizerSpec())
        with pytest.raises(DataError):
            numerics.weight_range([], QuantizerSpec())

    def test_missing_axis(self):
        with pytest.raises(QuantizerError):
            numerics.weight_range(np.zeros((2, 2)), QuantizerSpec(axis=2))

    @pytest.mark.parametrize(
        ("scale", "zero_point"),
        [(0.0, 0), (-1.0, 0), (np.nan, 0), (1.0, 128), (1.0, -129), ([1.0], [0]), (1.0, [0])],
    )
    def test_qparams_that_are_no_grid(self, scale, zero_point):
        with pytest.raises(QuantizerError):
            numerics.QParams(scale, zero_point, QuantizerSpec())

    def test_qparams_compare_by_value(self):
        assert numerics.qparams_from_range(-1, 1) == numerics.qparams_from_range(-1, 1)
        assert numerics.qparams_from_range(-1, 1) != numerics.qparams_from_range(-1, 1, num_bits=7)
        assert numerics.qparams_from_range(-1, 1) != numerics.qparams_from_range(-1, 2)


class TestRuntimeParity:
    @pytest.mark.parametrize("symmetric", [False, True])
    @pytest.mark.parametrize("signed", [False, True])
    @pytest.mark.parametrize("bounds", [(-2.56, 2.54), (0.0, 6.0), (-0.3, 7.1), (-1.0, 0.01), (0.0, 0.0)])
    def test_per_tensor_pairs_are_those_of_onnxruntime(self, bounds, signed, symmetric):
        params = numerics.qparams_from_range(*bounds, signed=signed, symmetric=symmetric)
        x = values_for(params, 7, (50_000,))
        zero_point = params.zero_point.astype(storage_dtype(params.spec))
        codes = run_node("QuantizeLinear", [x, params.scale, zero_point])
        np.testing.assert_array_equal(numerics.quantize(x, params), codes)
        values = run_node("DequantizeLinear", [codes, params.scale, zero_point])
        np.testing.assert_array_equal(numerics.fake_quantize(x, params).view(np.uint32), values.view(np.uint32))

    @pytest.mark.parametrize("signed", [False, True])
    def test_sixteen_bits(self, signed):
        params = numerics.qparams_from_range(-3.0, 5.0, num_bits=16, signed=signed, symmetric=False)
        x = values_for(params, 8, (50_000,))
        zero_point = params.zero_point.astype(storage_dtype(params.spec))
        codes = run_node("QuantizeLinear", [x, params.scale, zero_point])
        np.testing.assert_array_equal(numerics.quantize(x, params), codes)

    @pytest.mark.parametrize("symmetric", [False, True])
    @pytest.mark.parametrize("axis", [0, 1, 2])
    def test_per_axis_dequantization_is_that_of_onnxruntime(self, axis, symmetric):
        rng = np.random.default_rng(axis)
        w = rng.normal(size=(4, 5, 6)).astype(np.float32)
        spec = QuantizerSpec(axis=axis, symmetric=symmetric, narrow_range=symmetric)
        params = numerics.qparams_from_range(*numerics.weight_range(w, spec), spec)
        codes = numerics.quantize(w, params)
        values = run_node("DequantizeLinear", [codes, params.scale, params.zero_point.astype(codes.dtype)], axis=axis)
        np.testing.assert_array_equal(numerics.fake_quantize(w, params).view(np.uint32), values.view(np.uint32))


def test_importing_the_numerics_does_not_import_tensorflow():
    code = (
        "import sys, qdq_workbench.numerics, qdq_workbench.quantizers; "
        "sys.exit(any(name in sys.modules for name in ('tensorflow', 'keras')))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
