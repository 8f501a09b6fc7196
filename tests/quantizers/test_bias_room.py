"""The scales that an int32 bias asks of its weight."""

import numpy as np
import pytest

from qdq_workbench import QuantizerSpec
from qdq_workbench.quantizers.bias_room import bias_codes, bias_scale, least_weight_scale, make_room_for_bias

CODES = np.array([[0, 5, 0], [0, -3, 0]], np.int8)
SCALES = np.array([2.0**-10, 0.1, 2.0**-10], np.float32)
NO_ZERO_POINTS = np.zeros(3, np.int32)


def fitted(bias, *input_scales, codes=CODES, scales=SCALES, zero_points=NO_ZERO_POINTS, axis=1):
    spec = QuantizerSpec(axis=axis)
    inputs = [np.float32(scale) for scale in input_scales]
    kept, found = make_room_for_bias(codes, scales, zero_points, spec, np.float32(bias), inputs)
    np.testing.assert_array_equal(kept, codes)
    return found


@pytest.mark.parametrize("input_scale", [2.0**-90, 1e-3, 1.0, 1e6])
@pytest.mark.parametrize("bias", [1e-20, 0.4, -3e5])
def test_the_bias_of_a_dead_channel_is_exact_and_fits(bias, input_scale):
    found = fitted([bias, 0.0, bias], input_scale)
    step = bias_scale(np.float32(input_scale), found[0])
    (code,) = bias_codes(np.float32([bias]), step)
    assert np.float32(code) * step == pytest.approx(bias, rel=3e-7)
    assert found[1] == SCALES[1]


def test_the_calls_of_a_shared_layer_agree_on_a_scale_under_which_all_biases_fit():
    found = fitted([0.4, 0.4, 0.4], 1e-4, 10.0, 1.0)
    assert found[0] == fitted([0.4, 0.4, 0.4], 1e-4)[0]


def test_a_channel_without_a_bias_or_a_known_input_keeps_its_scale():
    np.testing.assert_array_equal(fitted([0.0, 0.4, -0.0], 1.0), SCALES)
    np.testing.assert_array_equal(fitted([0.4, 0.4, 0.4]), SCALES)


def test_one_scale_for_all_channels_is_that_of_the_largest_bias():
    zero, one = np.zeros((2, 3), np.int8), np.float32(2.0**-10)
    found = fitted([0.1, -0.4, 0.2], 1.0, codes=zero, scales=one, zero_points=np.int32(0), axis=None)
    assert found.shape == ()
    assert found == fitted([0.4, 0.4, 0.4], 1.0)[0]
    alive = fitted([0.1, 0.4, 0.2], 1.0, codes=CODES, scales=one, zero_points=np.int32(0), axis=None)
    assert alive == one


def test_zero_is_the_code_of_the_zero_point():
    found = fitted([0.4, 0.4, 0.4], 1.0, codes=CODES - np.int8(3), zero_points=np.array([-3, -3, 0], np.int32))
    assert found[0] < 1e-8
    np.testing.assert_array_equal(found[1:], SCALES[1:])


@pytest.mark.parametrize("input_scale", [2.0**-107, 2.0**100])
def test_the_step_of_a_bias_is_a_normal_number(input_scale):
    steps = np.float32(input_scale) * least_weight_scale(np.array([0.0, 1e-38, 1.0]), np.float32(input_scale))
    assert (steps >= np.finfo(np.float32).tiny).all()


def test_a_live_channel_whose_bias_overflows_takes_a_larger_scale_and_is_rounded_again():
    codes, scale = make_room_for_bias(
        CODES, SCALES, NO_ZERO_POINTS, QuantizerSpec(axis=1), np.float32([0, 1e3, 0]), [np.float32(1e-6)]
    )
    assert scale[1] > SCALES[1]
    assert bias_codes(np.float32([1e3]), bias_scale(np.float32(1e-6), scale[1])) is not None
    np.testing.assert_allclose(codes[:, 1] * scale[1], CODES[:, 1] * SCALES[1], atol=scale[1] / 2)


def test_a_bias_that_overflows_has_no_codes():
    assert bias_codes(np.float32([2.0**30]), np.float32(1)) is not None
    assert bias_codes(np.float32([2.0**30 + 128]), np.float32(1)) is None
    assert bias_codes(np.float32([1.0]), np.float32(0)) is None


@pytest.mark.parametrize("input_scales", [(1.0, 1e-6), (1e-6, 1.0)])
def test_the_bias_of_a_live_channel_fits_at_every_call_of_a_shared_layer(input_scales):
    spec, bias = QuantizerSpec(axis=1), np.float32([0, 1e3, 0])
    _, scale = make_room_for_bias(CODES, SCALES, NO_ZERO_POINTS, spec, bias, [np.float32(s) for s in input_scales])
    for input_scale in input_scales:
        assert bias_codes(bias[1:2], bias_scale(np.float32(input_scale), scale[1])) is not None


def test_a_slice_is_quantized_again_once_whatever_the_order_of_the_calls():
    spec = QuantizerSpec(axis=1)
    codes = np.arange(-127, 128, dtype=np.int8)[:, None]
    given = codes, np.float32([1.0]), np.zeros(1, np.int32), spec, np.float32([2.0**30])
    once = make_room_for_bias(*given, [np.float32(0.3)])
    for input_scales in ((0.7, 0.3), (0.3, 0.7)):
        found = make_room_for_bias(*given, [np.float32(scale) for scale in input_scales])
        np.testing.assert_array_equal(found[0], once[0])
        np.testing.assert_array_equal(found[1], once[1])
