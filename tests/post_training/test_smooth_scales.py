"""Smoothing: the function stays, outlying channels shrink, and the quantized model is better for it."""

import functools

import keras
import numpy as np
import pytest
from keras import layers

import qdq_workbench as qdq
from qdq_workbench.correction import smooth_scales
from qdq_workbench.errors import DataError, QuantizerError, SpecError

WIDTH = 16


def block(outlying=60.0):
    """A Transformer block in which two channels behind each normalization reach far."""
    keras.utils.set_random_seed(2)
    tokens = keras.Input((6, WIDTH), name="tokens")
    first = layers.LayerNormalization(name="first")(tokens)
    attended = layers.Add(name="add")([tokens, layers.MultiHeadAttention(2, 8, name="attention")(first, first)])
    second = layers.RMSNormalization(name="second")(attended)
    up = layers.Dense(32, activation="relu", name="up")(second)
    down = layers.EinsumDense("abc,cd->abd", output_shape=(None, WIDTH), bias_axes="d", name="down")(up)
    model = keras.Model(tokens, layers.Add(name="sum")([attended, down]), name="block")
    for name in ("first", "second"):
        gamma = model.get_layer(name).variables[0]
        spread = np.ones(WIDTH, "float32")
        spread[[3, 9]] = outlying
        gamma.assign(spread)
    for variable in (*model.get_layer("attention").variables, model.get_layer("up").kernel):
        if variable.shape[0] == WIDTH and "kernel" in variable.path:
            values = np.array(variable)
            values[[3, 9]] /= outlying
            variable.assign(values)
    return model


@pytest.fixture(scope="module")
def data():
    return np.random.default_rng(0).normal(size=(48, 6, WIDTH)).astype("float32")


@pytest.fixture(scope="module")
def model():
    """A block that nobody changes."""
    return block()


@pytest.fixture(scope="module")
def smoothed(model, data):
    """Smoothed copies of the block, by how they are smoothed; that of each way is made once."""

    @functools.cache
    def of(**how):
        return smooth_scales(model, data, **how)

    return of


def error_of(model, reference, data, target="onnxruntime"):
    q_model = qdq.quantize_model(model, target=target)
    qdq.calibrate(q_model, data, verbose=False)
    wished, found = np.asarray(reference(data)), np.asarray(q_model(data))
    return float(np.sum((wished - found) ** 2) / np.sum(wished**2))


@pytest.mark.parametrize("alpha", [None, 0.0, 0.5, 1.0])
def test_the_function_stays_and_the_model_is_only_read(model, smoothed, data, alpha):
    before = [np.array(variable) for variable in block().variables]

    found = smoothed(alpha=alpha)

    np.testing.assert_allclose(found(data), model(data), rtol=1e-3, atol=1e-3)
    for variable, value in zip(model.variables, before, strict=True):
        np.testing.assert_array_equal(variable, value)


@pytest.mark.parametrize("target", ["tensorrt", "onnxruntime"])
def test_a_searched_alpha_takes_most_of_the_error_away(model, smoothed, data, target):
    found = smoothed(target=target)

    assert error_of(found, model, data, target) < 0.1 * error_of(model, model, data, target)
    for name in ("first", "second"):
        gamma = np.abs(np.array(found.get_layer(name).variables[0]))
        assert gamma.max() / gamma.min() < 20.0


def test_the_search_is_no_worse_than_any_fixed_alpha_by_its_estimate(model, smoothed, data):
    searched = error_of(smoothed(target="onnxruntime"), model, data)

    fixed = [error_of(smoothed(alpha=alpha), model, data) for alpha in (0.0, 0.5, 1.0)]
    assert searched <= 1.2 * min(fixed)


def test_every_alpha_moves_what_the_equation_says(data):
    tokens = keras.Input((6, WIDTH), name="tokens")
    norm = layers.LayerNormalization(name="norm")
    model = keras.Model(tokens, layers.Dense(4, name="head")(norm(tokens)))
    norm.gamma.assign(np.linspace(0.5, 30.0, WIDTH).astype("float32"))
    peaks = np.abs(np.asarray(norm(data))).max(axis=(0, 1))
    widest = np.abs(np.array(model.get_layer("head").kernel)).max(axis=1)

    smoothed = smooth_scales(model, data, alpha=0.75)

    factors = np.array(norm.gamma) / np.array(smoothed.get_layer("norm").gamma)
    expected = peaks**0.75 / widest**0.25
    np.testing.assert_allclose(factors / factors[0], expected / expected[0], rtol=1e-4)
    np.testing.assert_allclose(np.exp(np.mean(np.log(factors))), 1.0, rtol=1e-4)


def test_the_file_is_verified(smoothed, data, tmp_path):
    q_model = qdq.quantize_model(smoothed(target="onnxruntime"), target="onnxruntime")
    qdq.calibrate(q_model, data, verbose=False)

    path = qdq.export_onnx(q_model, tmp_path / "smooth.onnx").path

    qdq.verify_onnx(path, q_model, data=data[:4]).raise_if_failed()


def test_tensors_with_other_readers_stay(data):
    tokens = keras.Input((6, WIDTH), name="tokens")
    normed = layers.LayerNormalization(name="norm")(tokens)
    value = layers.Dense(WIDTH, name="head")(normed)
    model = keras.Model(tokens, layers.Add(name="sum")([normed, value]))
    model.get_layer("norm").gamma.assign(np.linspace(1.0, 50.0, WIDTH).astype("float32"))

    smoothed = smooth_scales(model, data, alpha=0.5)

    for ours, theirs in zip(smoothed.variables, model.variables, strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_the_function_of_layers_with_low_rank_updates_stays(data):
    model = block()
    for name in ("up", "down"):
        layer = model.get_layer(name)
        layer.enable_lora(2)
        layer.lora_kernel_b.assign(keras.ops.ones_like(layer.lora_kernel_b))
    smoothed = smooth_scales(model, data, alpha=0.5)
    np.testing.assert_allclose(smoothed(data), model(data), atol=1e-3)
    assert not np.array_equal(smoothed.get_layer("first").gamma, model.get_layer("first").gamma)


def test_dead_channels_and_even_ones_stay(data):
    tokens = keras.Input((6, WIDTH), name="tokens")
    norm = layers.BatchNormalization(name="norm")
    model = keras.Model(tokens, layers.Conv1D(4, 3, padding="same", name="conv")(norm(tokens)))
    gamma = np.linspace(0.5, 40.0, WIDTH).astype("float32")
    gamma[5] = 0.0
    norm.gamma.assign(gamma)

    smoothed = smooth_scales(model, data, alpha=0.5)

    assert np.array(smoothed.get_layer("norm").gamma)[5] == 0.0
    assert all(np.isfinite(np.array(variable)).all() for variable in smoothed.variables)
    np.testing.assert_allclose(smoothed(data), model(data), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("alpha", [-0.1, 1.5, "half", True, float("nan")])
def test_alpha_is_a_share(model, data, alpha):
    with pytest.raises(QuantizerError, match="alpha must be a number from 0 to 1"):
        smooth_scales(model, data, alpha=alpha)


def test_other_mistakes_are_named(model, data):
    with pytest.raises(SpecError, match="another model"):
        smooth_scales(model, data, plan=qdq.plan_placement(keras.Sequential([keras.Input((3,)), layers.Dense(2)])))
    with pytest.raises(DataError, match="steps must be an integer from 1 on"):
        smooth_scales(model, data, steps=0)
    with pytest.raises(DataError, match="NaN or infinity"):
        smooth_scales(model, np.full_like(data, np.nan))
