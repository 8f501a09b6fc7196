"""TFMOT's quantizers: its arguments in its order, its ranges, worked out by hand, and what is saved of them."""

import inspect

import keras
import numpy as np
import pytest

import qdq_workbench as qdq
from qdq_workbench.tfmot import quantizers
from qdq_workbench.tfmot.quantizers import (
    AllValuesQuantizer,
    FixedQuantizer,
    LastValueQuantizer,
    MovingAverageQuantizer,
)

TRAINED = (LastValueQuantizer, MovingAverageQuantizer, AllValuesQuantizer)


def built(quantizer, shape=(4, 2)):
    return quantizer.build(shape, "w", keras.layers.Layer())


def trained(quantizer, *batches):
    """Return the range of the grid after some batches, each the lowest and the highest value of a tensor."""
    weights = built(quantizer)
    for low, high in batches:
        quantizer(keras.ops.convert_to_tensor([[low, high], [0.25 * low, 0.25 * high]]), True, weights)
    return np.array(quantizer.read_range(weights))


@pytest.mark.parametrize("kind", TRAINED)
def test_arguments_and_their_defaults_are_those_of_tfmot(kind):
    given = inspect.signature(kind).parameters
    assert {name: parameter.default for name, parameter in given.items()} == {
        "num_bits": 8,
        "per_axis": False,
        "symmetric": False,
        "narrow_range": False,
    }
    spec = kind(4, True, True, True).spec
    assert (spec.num_bits, spec.axis, spec.symmetric, spec.narrow_range) == (4, -1, True, True)


@pytest.mark.parametrize(
    ("kind", "start"),
    [(LastValueQuantizer, (-6, 6)), (MovingAverageQuantizer, (-6, 6)), (AllValuesQuantizer, (0, 0))],
)
def test_the_range_before_the_first_batch_is_that_of_tfmot(kind, start):
    quantizer = kind()
    weights = built(quantizer)
    np.testing.assert_array_equal(quantizer.read_range(weights), start)
    quantizer.write_range(weights, -1.0, 2.0)
    quantizer.forget_range(weights)
    np.testing.assert_array_equal(quantizer.read_range(weights), start)


@pytest.mark.parametrize(
    ("settings", "batch", "expected"),
    [
        ({}, (-1.0, 2.0), (-1.0, 2.0)),
        ({}, (0.5, 2.0), (0.0, 2.0)),
        ({}, (-3.0, -1.0), (-3.0, 0.0)),
        # Narrow: both ends are as far from 0 as the farther one.
        ({"symmetric": True, "narrow_range": True}, (-1.0, 2.0), (-2.0, 2.0)),
        ({"symmetric": True, "narrow_range": True}, (-3.0, 2.0), (-3.0, 3.0)),
        # Wide, with R = -254/256 (8 bits): the upper end follows the lower one at R, and the grid is its mirror image.
        ({"symmetric": True}, (-1.0, 2.0), (-2.0, 2.0)),
        ({"symmetric": True}, (-2.56, 1.0), (-2.54, 2.54)),
        ({"symmetric": True, "num_bits": 4}, (-1.6, 1.0), (-1.4, 1.4)),
    ],
)
def test_the_range_of_a_batch_is_worked_out_by_hand(settings, batch, expected):
    np.testing.assert_allclose(trained(LastValueQuantizer(**settings), batch), expected, rtol=1e-6)


def test_the_lower_end_of_a_wide_symmetric_range_is_kept_where_it_reaches_further():
    """What is stored is TFMOT's pair of ends, of which the grid takes the upper one."""
    quantizer = LastValueQuantizer(symmetric=True)
    weights = built(quantizer)
    quantizer.write_range(weights, -1.0, 2.54)
    stored = [float(weights[key].numpy()) for key in ("min_var", "max_var")]
    np.testing.assert_allclose(stored, (-2.56, 2.54), rtol=1e-6)
    np.testing.assert_allclose(quantizer.read_range(weights), (-2.54, 2.54), rtol=1e-6)


def test_the_last_batch_the_widest_range_or_an_average_counts():
    batches = ((-1.0, 4.0), (-2.0, 3.0))
    np.testing.assert_allclose(trained(LastValueQuantizer(), *batches), (-2.0, 3.0))
    np.testing.assert_allclose(trained(AllValuesQuantizer(), *batches), (-2.0, 4.0))
    average = trained(MovingAverageQuantizer(), *batches)
    low, high = -6.0, 6.0
    for one in batches:
        low, high = 0.999 * low + 0.001 * one[0], 0.999 * high + 0.001 * one[1]
    np.testing.assert_allclose(average, (low, high), rtol=1e-6)


def test_a_range_that_is_set_is_extended_to_zero():
    quantizer = AllValuesQuantizer()
    weights = built(quantizer)
    quantizer.write_range(weights, 1.0, 2.0)
    np.testing.assert_array_equal(quantizer.read_range(weights), (0.0, 2.0))


def test_every_slice_along_the_last_axis_has_its_own_range():
    quantizer = LastValueQuantizer(per_axis=True, symmetric=True, narrow_range=True)
    weights = built(quantizer)
    quantizer(keras.ops.convert_to_tensor([[1.0, -4.0], [-2.0, 3.0]]), True, weights)
    np.testing.assert_array_equal(quantizer.read_range(weights), ([-2.0, -4.0], [2.0, 4.0]))


@pytest.mark.parametrize(
    "quantizer",
    [*(kind(4, True, True, True) for kind in TRAINED), FixedQuantizer(4, -1.0, 3.0, narrow_range=True)],
    ids=lambda quantizer: type(quantizer).__name__,
)
def test_what_is_saved_is_tfmots_arguments(quantizer):
    config = quantizer.get_config()
    assert set(config) == set(inspect.signature(type(quantizer)).parameters)
    assert type(quantizer)(*config.values()) == quantizer
    saved = keras.saving.serialize_keras_object(quantizer)
    assert saved["registered_name"] == f"qdq_workbench.tfmot>{type(quantizer).__name__}"
    assert keras.saving.deserialize_keras_object(saved) == quantizer


def test_a_fixed_range_is_asymmetric_and_training_leaves_it():
    quantizer = FixedQuantizer(6, -1.0, 3.0)
    assert isinstance(quantizer, qdq.FixedQuantizer)
    assert (quantizer.spec.num_bits, quantizer.spec.symmetric, quantizer.spec.axis) == (6, False, None)
    assert FixedQuantizer(narrow_range=True).spec.narrow_range is not quantizer.spec.narrow_range
    np.testing.assert_array_equal(trained(quantizer, (-9.0, 9.0)), (-1.0, 3.0))
    assert list(FixedQuantizer().get_config().values()) == [8, -6.0, 6.0, False]


def test_a_quantizer_without_a_rule_for_batches_says_so():
    with pytest.raises(NotImplementedError):
        trained(quantizers._TFMOTQuantizer(), (-1.0, 1.0))
