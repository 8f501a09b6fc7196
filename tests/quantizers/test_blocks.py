"""Blocks: so many values along an axis share a scale, on arrays, on tensors, and as ONNX Runtime dequantizes them."""

import numpy as np
import pytest
import tensorflow as tf
from one_node import run_node

from qdq_workbench import numerics
from qdq_workbench.errors import DataError, QuantizerError
from qdq_workbench.quantizers import FixedQuantizer, LastValueQuantizer, LSQQuantizer, blocks
from qdq_workbench.quantizers.fake_quantize import fake_quantize_tensor, fake_quantize_weight
from qdq_workbench.quantizers.make import make_quantizer
from qdq_workbench.quantizers.shared_functions import fake_quantize_weight_if
from qdq_workbench.spec.quantizer_method import QuantizerMethod
from qdq_workbench.spec.quantizer_spec import QuantizerSpec

SHAPE = (70, 6)
GRIDS = {
    "symmetric": QuantizerSpec(num_bits=4, narrow_range=True, axis=0, block_size=32),
    "asymmetric": QuantizerSpec(num_bits=4, symmetric=False, axis=0, block_size=32),
    "unsigned": QuantizerSpec(num_bits=8, signed=False, symmetric=False, axis=-1, block_size=4),
}


def weight(seed=0):
    return np.random.default_rng(seed).normal(size=SHAPE).astype(np.float32)


@pytest.mark.parametrize("spec", GRIDS.values(), ids=GRIDS)
def test_every_block_has_the_range_of_its_own_values(spec):
    values = weight()
    low, high = numerics.weight_range(values, spec)
    axis, size = spec.axis % 2, spec.block_size
    pieces = np.split(values, range(size, SHAPE[axis], size), axis)
    np.testing.assert_array_equal(low, np.stack([piece.min(axis) for piece in pieces], axis))
    np.testing.assert_array_equal(high, np.stack([piece.max(axis) for piece in pieces], axis))
    assert low.shape == blocks.scale_shape(SHAPE, spec)


@pytest.mark.parametrize("spec", GRIDS.values(), ids=GRIDS)
def test_tensors_are_rounded_as_arrays_are_bit_for_bit(spec):
    values = weight()
    params = numerics.qparams_from_range(*numerics.weight_range(values, spec), spec)
    expected = numerics.fake_quantize(values, params) + np.float32(0)  # no negative zeros
    traced = tf.function(lambda w: fake_quantize_weight_if(tf.constant(True), w, spec))
    for found in (
        fake_quantize_weight(values, spec),
        fake_quantize_weight(values, spec, jit=True),
        fake_quantize_tensor(tf.constant(values), *numerics.weight_range(values, spec), spec),
        traced(tf.constant(values)),
    ):
        np.testing.assert_array_equal(found.numpy() + np.float32(0), expected)


def test_onnx_runtime_dequantizes_blocks_to_the_same_bits():
    values, spec = weight(), GRIDS["unsigned"]
    params = numerics.qparams_from_range(*numerics.weight_range(values, spec), spec)
    codes = numerics.quantize(values, params)
    found = run_node(
        "DequantizeLinear",
        [codes, params.scale, params.zero_point.astype(codes.dtype)],
        axis=1,
        block_size=spec.block_size,
    )
    np.testing.assert_array_equal(found, numerics.dequantize(codes, params))


def test_the_gradient_passes_where_values_lie_on_the_grid_of_their_block():
    spec = QuantizerSpec(num_bits=4, axis=0, block_size=2)
    x = tf.constant([[0.5], [3.0], [0.5], [3.0]])
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = fake_quantize_tensor(x, [[-1.0], [-4.0]], [[1.0], [4.0]], spec)
    assert tape.gradient(y, x).numpy().ravel().tolist() == [1.0, 0.0, 1.0, 1.0]


def test_a_learned_step_per_block_starts_from_its_values_and_gets_its_own_gradient():
    quantizer = LSQQuantizer(num_bits=4, per_axis=True, axis=0, block_size=32)
    layer = tf.keras.layers.Layer()
    variables = quantizer.build(SHAPE, "kernel", layer)
    values = weight()
    quantizer.start_from(variables, values)
    sizes = [np.abs(piece).mean(axis=0) for piece in np.split(values, [32, 64], axis=0)]
    np.testing.assert_allclose(variables["step_var"].numpy(), 2 * np.stack(sizes) / np.sqrt(7), rtol=1e-5)
    with tf.GradientTape() as tape:
        y = quantizer(tf.constant(values), False, variables)
        total = tf.reduce_sum(y[:32])
    gradient = tape.gradient(total, variables["step_var"].value).numpy()
    assert np.all(gradient[0] != 0.0)
    assert np.all(gradient[1:] == 0.0)


def test_a_quantizer_with_blocks_goes_through_its_configuration_and_the_plan():
    quantizer = FixedQuantizer(-1.0, 1.0, num_bits=4, per_axis=True, axis=0, block_size=32)
    assert FixedQuantizer.from_config(quantizer.get_config()) == quantizer
    assert quantizer.settings()["block_size"] == 32
    assert make_quantizer(quantizer.spec, QuantizerMethod("lsq"), "last_value").spec == quantizer.spec
    assert "block_size" not in LastValueQuantizer().get_config()
    assert "block_size" not in QuantizerSpec(axis=0).to_dict()
    assert QuantizerSpec.from_dict(quantizer.spec.to_dict()) == quantizer.spec
    assert quantizer.spec.label == "int4/blocks of 32 on axis 0"


@pytest.mark.parametrize(
    ("make", "error", "words"),
    [
        (lambda: QuantizerSpec(axis=0, block_size=1), QuantizerError, "at least 2"),
        (lambda: QuantizerSpec(axis=0, block_size=32.0), QuantizerError, "at least 2"),
        (lambda: QuantizerSpec(block_size=32), QuantizerError, "Blocks lie along an axis"),
        (
            lambda: numerics.quantize(weight(), numerics.qparams_from_range([[0.0]], [[1.0]], GRIDS["symmetric"])),
            DataError,
            "do not fit blocks of 32 on axis 0",
        ),
        (lambda: numerics.qparams_from_range([[0.0]], [[1.0]]), DataError, r"of shape \(C,\)"),
        (
            lambda: numerics.QParams(np.ones((3, 6)), np.zeros((3, 6)), QuantizerSpec(axis=0)),
            QuantizerError,
            "one value per block for a spec with a block_size",
        ),
    ],
)
def test_what_does_not_fit_is_refused(make, error, words):
    with pytest.raises(error, match=words):
        make()
