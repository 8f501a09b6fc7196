"""What counts as a difference between the integers of two programs."""

import numpy as np
import pytest

from qdq_workbench.errors import VerificationError
from qdq_workbench.numerics import QParams, quantize
from qdq_workbench.spec.quantizer_spec import QuantizerSpec
from qdq_workbench.verification.differences import compare_codes, top1_agreement

GRID = QParams(np.float32(0.5), np.int32(0), QuantizerSpec(symmetric=True))


def compared(ours, codes, **explained):
    return compare_codes("t", np.array([ours], np.float32), np.array([codes], np.int8), GRID, None, **explained)


def explained(ours, codes, **errors):
    """The steps by which the integers of the values move with what is explained added."""
    found = compared(ours, codes, **errors).explained
    values = np.float32(ours)
    return (
        (quantize(values + (0 if found is None else found), GRID).astype(int) - quantize(values, GRID)).ravel().tolist()
    )


def test_differences_are_counted_in_steps():
    parity = compared([0.0, 1.0, 2.0, 3.0], [0, 3, 2, 6])

    assert (parity.elements, parity.off_by_one, parity.worst, parity.by_bias) == (4, 1, 2, 0)


@pytest.mark.parametrize(("noise", "off"), [(0.49, 1), (0.5, 0)])
def test_a_step_within_the_noise_of_floats_is_none(noise, off):
    assert compared([0.0], [1], noise=noise).off_by_one == off


@pytest.mark.parametrize(("bias", "off", "worst", "by_bias"), [(0.99, 0, 3, 0), (1.0, 1, 1, 3)])
def test_what_the_rounding_of_a_bias_explains_counts_as_one_step(bias, off, worst, by_bias):
    """Values that lie two steps apart may have integers that lie three apart."""
    parity = compared([0.0], [3], bias=bias)

    assert (parity.off_by_one, parity.worst, parity.by_bias) == (off, worst, by_bias)


@pytest.mark.parametrize(("noise", "by_bias"), [(0.99, 3), (1.0, 0)])
def test_what_noise_explains_is_not_the_bias_s(noise, by_bias):
    parity = compared([0.0], [3], noise=noise, bias=1.0)

    assert (parity.off_by_one, parity.worst, parity.by_bias) == (1, 1, by_bias)


@pytest.mark.parametrize(
    ("noise", "steps"), [(0.24, [0, 0, 0]), (0.49, [1, 0, 0]), (0.5, [1, 0, 0]), (1.5, [1, 0, -3])]
)
def test_what_noise_explains_is_told_in_its_place_and_by_its_steps(noise, steps):
    assert explained([0.0, 0.0, 0.0], [1, 0, -3], noise=noise) == steps


def test_one_step_is_none_of_the_bias_s():
    parity = compared([0.0, 0.0], [1, 0], bias=100.0)

    assert (parity.off_by_one, parity.worst, parity.by_bias) == (1, 1, 0)


@pytest.mark.parametrize("errors", [{"bias": 0.02}, {"noise": 0.02}, {"noise": 0.006, "bias": 0.006}], ids=str)
@pytest.mark.parametrize(
    ("ours", "codes", "steps"),
    [
        ([0.26, 0.24], [0, 1], [-1, 1]),
        ([-0.26, 0.76], [0, 1], [1, -1]),
        ([0.31, 0.26], [0, 1], [0, 0]),
        ([0.26], [3], [0]),
    ],
)
def test_a_step_of_values_near_the_boundary_between_two_integers_is_explained(ours, codes, steps, errors):
    """The second value of a row with no tie is equal; two steps are no tie."""
    assert explained(ours, codes, **errors) == steps


def test_what_a_bias_explains_is_told_in_its_place_and_by_its_steps():
    assert explained([0.0, 1.0, 0.0, 0.0], [3, 1, -3, 9], bias=1.0) == [3, -1, -3, 0]


def test_an_explanation_has_the_layout_of_keras():
    ours = np.float32([[[[0, 4], [0, 2]], [[0, 1], [0, 3]]]])
    theirs = np.int8([[[[0, 0], [0, 0]], [[8, 4], [2, 9]]]])
    found = compare_codes("t", ours, theirs, GRID, None, bias=1.0).explained
    np.testing.assert_array_equal(found, [[[[0, 0], [0, 0]], [[0, 0], [0, 1.5]]]])


def test_a_value_beyond_the_end_of_the_grid_is_moved_into_it():
    assert explained([70.0], [125], bias=7.0) == [-2]
    assert explained([1000.0], [125], bias=7.0) == [0]  # an error of the file


def test_integers_of_another_shape_are_another_tensor():
    with pytest.raises(VerificationError, match=r"tensor 't', shape \(1, 3\), expected \(1, 2\)"):
        compared([0.0, 1.0], [0, 2, 4])


@pytest.mark.parametrize("shape", [(4,), (4, 1)])
def test_there_is_no_agreement_without_classes(shape):
    assert top1_agreement(np.zeros(shape), np.zeros(shape)) is None


def test_agreement_is_the_share_of_positions_with_the_same_class():
    assert top1_agreement(np.eye(4), np.eye(4)[[0, 1, 2, 2]]) == 0.75
