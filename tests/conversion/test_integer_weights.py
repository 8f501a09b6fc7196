"""`integer_weights`: codes, int32 biases per call of a shared layer, and weights that a bias would cost."""

import keras
import numpy as np
import pytest
from keras import layers
from small_models import residual_net, samples

import qdq_workbench as qdq
from qdq_workbench.conversion.engine.integer_weights import IntegerTensor, check_kept, integer_weights
from qdq_workbench.errors import ExportError

WANTED = np.array([[1.0, -2.0], [0.5, 0.0]])


def test_integers_scales_and_biases():
    model = residual_net()
    q_model = qdq.quantize_model(model)
    qdq.calibrate(q_model, samples(model), verbose=False)
    found = qdq.integer_weights(q_model)
    stem = found["stem/kernel"]
    assert isinstance(stem, IntegerTensor)
    assert (stem.codes.dtype, stem.axis, stem.num_bits, stem.scale.shape) == (np.int8, 3, 8, (4,))
    assert stem.codes.min() >= -127
    assert np.abs(stem.codes).reshape(-1, 4).max(0).tolist() == [127] * 4
    baked = qdq.strip(q_model, bake_weights=True).get_layer("stem").kernel
    np.testing.assert_array_equal(stem.dequantize(), baked)

    bias = found["head/bias"]
    low, high = q_model.activation_ranges()["pool"]
    assert bias.codes.dtype == np.int32
    np.testing.assert_allclose(bias.scale, max(-low, high) / 127 * found["head/kernel"].scale, rtol=1e-6)
    np.testing.assert_allclose(bias.dequantize(), model.get_layer("head").bias, atol=bias.scale.max())
    assert isinstance(found["norm/gamma"], np.ndarray)


def test_biases_without_a_known_input_range_stay_float():
    found = qdq.integer_weights(qdq.quantize_model(residual_net()))
    assert isinstance(found["head/bias"], np.ndarray)


@pytest.fixture(scope="module")
def q_model():
    image, other = keras.Input((4,), name="image"), keras.Input((4,), name="other")
    dense = layers.Dense(3, name="dense")
    model = keras.Model([image, other], [dense(image), dense(other)])
    dense.bias.assign([6.0, -3.0, 0.5])
    q_model = qdq.quantize_model(model, target="onnxruntime")
    images = np.random.default_rng(0).normal(size=(8, 4)).astype("float32")
    qdq.calibrate(q_model, [images, images * np.float32(0.01)], verbose=False)
    return q_model


def test_a_weight_is_rounded_on_its_grid(q_model):
    kernel = integer_weights(q_model)["dense/kernel"]
    floats = q_model.get_layer("quant_dense").layer.kernel.numpy()
    np.testing.assert_array_equal(kernel.codes, np.rint(floats / kernel.scale))
    np.testing.assert_array_equal(np.abs(kernel.codes).max(axis=0), 127)


def test_the_bias_of_a_shared_layer_has_the_scale_of_each_call(q_model):
    found = integer_weights(q_model)
    ranges = q_model.activation_ranges()
    for call, tensor in (("dense", "image"), ("dense#1", "other")):
        bias = found[f"{call}/bias"]
        low, high = ranges[tensor]
        # The scale of the input is at most its range over 255 steps, and at least that over 254.
        ratio = bias.scale / found["dense/kernel"].scale
        assert ((ratio > (high - low) / 256) & (ratio < 2 * max(-low, high) / 254)).all()
        np.testing.assert_allclose(bias.codes * bias.scale.astype(np.float64), [6.0, -3.0, 0.5], atol=bias.scale.max())


def test_weights_that_are_kept_are_no_error():
    check_kept("dense", WANTED, WANTED, [np.float32(1), np.float32(0.1)])
    check_kept("dense", WANTED, WANTED + 0.008 / 4, [np.float32(1), np.float32(0.1)])
    check_kept("dense", 0 * WANTED, 0 * WANTED, [np.float32(1), np.float32(0.1)])


def test_weights_that_are_lost_are_told_with_both_scales():
    with pytest.raises(ExportError, match=r"'block/dense' is called with .* input scales from 1e-09 to 0\.5"):
        check_kept("block/dense", WANTED, WANTED * 0.98, [np.float32(0.5), np.float32(1e-9)])
