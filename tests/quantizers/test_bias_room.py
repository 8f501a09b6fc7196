"""The scales that an int32 bias asks of its weight."""

import numpy as np
import pytest

from qdq_workbench.quantizers.bias_room import BIAS_LIMIT, fit_dead_scales, least_weight_scale

CODES = np.array([[0, 5, 0], [0, -3, 0]], np.int8)
SCALES = np.array([2.0**-10, 0.1, 2.0**-10], np.float32)
NO_ZERO_POINTS = np.zeros(3, np.int32)


def fitted(bias, *input_scales, codes=CODES, scales=SCALES, zero_points=NO_ZERO_POINTS, axis=1):
    return fit_dead_scales(codes, scales, zero_points, axis, np.float32(bias), [np.float32(s) for s in input_scales])


@pytest.mark.parametrize("input_scale", [2.0**-90, 1e-3, 1.0, 1e6])
@pytest.mark.parametrize("bias", [1e-20, 0.4, -3e5])
def test_the_bias_of_a_dead_channel_is_exact_and_fits(bias, input_scale):
    found = fitted([bias, bias, bias], input_scale)
    step = np.float32(input_scale) * found[0]
    code = np.rint(np.float64(np.float32(bias)) / step)
    assert abs(code) <= BIAS_LIMIT
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
