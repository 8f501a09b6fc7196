"""Integers of every width and form, in memory and in files, bit for bit."""

import keras
import numpy as np
import pytest
from keras import layers
from small_models import residual_net, samples

import qdq_workbench as qdq
from qdq_workbench.conversion.engine.integer_weights import IntegerTensor
from qdq_workbench.errors import DataError, FileAccessError, OutputPathError

BITS = [2, 3, 4, 5, 6, 7, 8, 16]


def dense_model():
    """A convolution and a Dense whose channels differ in size and sign; one channel is all zero."""
    keras.utils.set_random_seed(7)
    image = keras.Input((6, 6, 2), name="image")
    x = layers.Conv2D(4, 3, name="conv")(image)
    model = keras.Model(image, layers.Dense(3, name="head")(layers.Flatten(name="flat")(x)))
    kernel = np.asarray(model.get_layer("conv").kernel) * np.float32([1.0, 10.0, 0.1, 0.0])
    kernel[..., 1] += 0.5
    model.get_layer("conv").kernel.assign(kernel)
    return model


MODEL = dense_model()
X = np.random.default_rng(0).normal(size=(4, 6, 6, 2)).astype(np.float32)


@pytest.mark.parametrize("narrow", [False, True])
@pytest.mark.parametrize("symmetric", [False, True])
@pytest.mark.parametrize("per_axis", [False, True])
def test_every_grid_round_trips_through_both_kinds_of_file(tmp_path, per_axis, symmetric, narrow):
    for bits in BITS:
        spec = qdq.QuantizationSpec()
        settings = {"num_bits": bits, "per_axis": per_axis, "symmetric": symmetric, "narrow_range": narrow}
        for name, signed in (("conv", True), ("head", False)):
            config = qdq.LayerQuantizeConfig(weight={**settings, "signed": signed})
            spec.add(name, quantize_config=config)
        q_model = qdq.quantize_model(MODEL, quantization_spec=spec)
        expected = qdq.integer_weights(q_model)
        for suffix in (".npz", ".h5"):
            path = qdq.save_integer_weights(q_model, tmp_path / f"weights{suffix}")
            found = qdq.load_integer_weights(path)
            assert set(found) == set(expected)
            for name, weight in expected.items():
                if not isinstance(weight, IntegerTensor):
                    np.testing.assert_array_equal(found[name], weight)
                    continue
                for part in ("codes", "scale", "zero_point"):
                    ours, theirs = getattr(weight, part), getattr(found[name], part)
                    assert ours.dtype == theirs.dtype
                    np.testing.assert_array_equal(theirs, ours)
                assert (found[name].num_bits, found[name].axis, found[name].signed) == (
                    bits,
                    weight.axis,
                    weight.signed,
                )
                np.testing.assert_array_equal(found[name].dequantize(), weight.dequantize())
        for wrapper in q_model.wrappers:  # what training computes with
            variable, quantizer, ranges = wrapper._weight_vars[0]
            values = quantizer(variable, training=False, weights=ranges)
            tensor = expected[f"{wrapper.layer.name}/kernel"]
            np.testing.assert_array_equal(tensor.dequantize(), values)
            assert (tensor.axis is not None) == per_axis
            lowest = (0 if wrapper.layer.name == "head" else -(2 ** (bits - 1))) + narrow
            assert tensor.codes.min() >= lowest
            assert tensor.codes.max() <= lowest - narrow + 2**bits - 1
            assert tensor.codes.dtype.itemsize == (1 if bits <= 8 else 2)
            middle = 0 if wrapper.layer.name == "conv" else 2 ** (bits - 1)
            assert (tensor.zero_point == middle).all() or not symmetric


def test_biases_are_32_bits_and_other_weights_stay_as_they_are(tmp_path):
    model = residual_net()
    q_model = qdq.quantize_model(model)
    qdq.calibrate(q_model, samples(model), verbose=False)
    found = qdq.load_integer_weights(qdq.save_integer_weights(q_model, tmp_path / "weights.h5"))
    assert (found["head/bias"].codes.dtype, found["head/bias"].num_bits) == (np.int32, 32)
    np.testing.assert_array_equal(found["norm/gamma"], model.get_layer("norm").gamma)


def test_adjusted_ranges_after_folding_equal_ranges_taken_anew():
    """Folding first gives the same integers as mirroring them by the sign of the gain, scales times its size."""
    model = residual_net()
    before = qdq.integer_weights(qdq.quantize_model(model))["conv/kernel"]
    after = qdq.integer_weights(qdq.quantize_model(qdq.fold_batch_norm(model)))["conv/kernel"]
    norm = model.get_layer("norm")
    gain = np.asarray(norm.gamma) / np.sqrt(np.asarray(norm.moving_variance) + norm.epsilon)
    assert (gain < 0).any()
    np.testing.assert_array_equal(after.codes, before.codes * np.sign(gain))
    np.testing.assert_allclose(after.scale, before.scale * np.abs(gain), rtol=1e-6)


def test_files_that_cannot_be_written_or_read_are_explained(tmp_path):
    q_model = qdq.quantize_model(MODEL)
    with pytest.raises(OutputPathError, match=r"\.npz"):
        qdq.save_integer_weights(q_model, tmp_path / "weights.bin")
    for path in (None, 3, str(tmp_path)):
        with pytest.raises(OutputPathError, match="Received: path="):
            qdq.save_integer_weights(q_model, path)
    with pytest.raises(FileAccessError, match="Received: path=None"):
        qdq.load_integer_weights(None)
    with pytest.raises(FileAccessError, match="Cannot read"):
        qdq.load_integer_weights(tmp_path / "missing.npz")
    (tmp_path / "empty.npz").touch()
    with pytest.raises(FileAccessError, match="Cannot read"):
        qdq.load_integer_weights(tmp_path / "empty.npz")
    (tmp_path / "text.h5").write_text("no weights")
    with pytest.raises(FileAccessError, match="save_integer_weights"):
        qdq.load_integer_weights(tmp_path / "text.h5")
    np.savez(tmp_path / "other.npz", **{"a/codes": np.zeros(3)})
    with pytest.raises(DataError, match="is missing"):
        qdq.load_integer_weights(tmp_path / "other.npz")
