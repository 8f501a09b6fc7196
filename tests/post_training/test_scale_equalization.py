"""Equalization keeps the function, evens out the channels, and leaves alone what it must."""

import keras
import numpy as np
import pytest
from keras import layers
from small_models import nested_net, residual_net, samples, shake

import qdq_workbench as qdq
from qdq_workbench.correction import equalize_scales
from qdq_workbench.errors import QuantizerError
from qdq_workbench.post_training.gaussian import rectified_moments


def uneven(model):
    """Blow up some channels of every kernel, as training with batch normalization leaves them."""
    generator = np.random.default_rng(0)
    for layer in model.layers:
        if hasattr(layer, "kernel"):
            layer.kernel.assign(layer.kernel * np.exp(generator.normal(0, 1.5, layer.kernel.shape[-1])))
    return model


def chain(**conv):
    keras.utils.set_random_seed(0)
    image = keras.Input((9, 9, 3), name="image")
    hidden = layers.Conv2D(4, 3, padding="same", use_bias=False, name="conv", **conv)(image)
    hidden = layers.BatchNormalization(name="norm")(hidden)
    hidden = layers.ReLU(name="relu")(hidden)
    hidden = layers.MaxPooling2D(name="max")(hidden)
    hidden = layers.DepthwiseConv2D(3, activation="leaky_relu", name="depthwise")(hidden)
    hidden = layers.Conv2D(5, 1, name="conv2")(hidden)
    hidden = layers.PReLU(name="prelu")(hidden)
    hidden = layers.GlobalAveragePooling2D(name="pool")(hidden)
    hidden = layers.Dense(4, activation="relu", name="hidden")(hidden)
    return uneven(shake(keras.Model(image, layers.Dense(3, name="head")(hidden), name="chain")))


def relative_difference(one, other, x):
    one, other = np.asarray(one(x, training=False)), np.asarray(other(x, training=False))
    return np.abs(one - other).max() / np.abs(one).max()


@pytest.mark.parametrize("method", ["ranges", "moments"])
@pytest.mark.parametrize(
    "build", [chain, lambda: uneven(residual_net()), nested_net], ids=["chain", "residual", "nested"]
)
def test_the_function_stays(build, method):
    model = build()
    before = model.get_weights()
    equalized = equalize_scales(model, method)
    assert relative_difference(model, equalized, samples(model)) < 1e-5
    for ours, theirs in zip(model.get_weights(), before, strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_both_ends_of_every_channel_become_equally_wide():
    equalized = equalize_scales(chain())
    ends = {
        name: np.abs(equalized.get_layer(name).kernel.numpy())
        for name in ("conv", "depthwise", "conv2", "hidden", "head")
    }
    outputs = {"conv": (0, 1, 2), "conv2": (0, 1, 2), "hidden": (0,)}
    for first, second, axes in (("conv", "depthwise", (0, 1, 3)), ("conv2", "hidden", (1,)), ("hidden", "head", (1,))):
        np.testing.assert_allclose(ends[first].max(axis=outputs[first]), ends[second].max(axis=axes), rtol=1e-3)


def test_moments_make_wide_activations_narrow():
    model = chain()
    model.get_layer("norm").gamma.assign(model.get_layer("norm").gamma * [4.0, 0.5, 3.0, 2.0])
    equalized = equalize_scales(model, "moments")
    x = samples(model, 64)
    norm = model.get_layer("norm")
    _, variance = rectified_moments(norm.beta.numpy(), np.abs(norm.gamma.numpy()))
    expected = np.minimum(1 / np.sqrt(variance), 1)
    plain = keras.Model(model.inputs[0], model.get_layer("relu").output)(x).numpy().reshape(-1, 4).std(axis=0)
    scaled = keras.Model(equalized.inputs[0], equalized.get_layer("relu").output)(x).numpy().reshape(-1, 4).std(axis=0)
    np.testing.assert_allclose(scaled, plain * expected, rtol=1e-3)
    assert (expected < 1).any()


def test_quantization_loses_less():
    """With one scale per tensor, channels of different widths cost; equalized ones do not."""
    keras.utils.set_random_seed(0)
    image = keras.Input((16,), name="image")
    first = layers.Dense(32, activation="relu", name="first")
    second = layers.Dense(4, name="second")
    model = keras.Model(image, second(first(image)))
    factor = np.exp(np.random.default_rng(0).normal(0, 2, 32)).astype("float32")
    first.kernel.assign(first.kernel * factor)
    second.kernel.assign(second.kernel / factor[:, None])
    spec = qdq.QuantizationSpec()
    config = qdq.LayerQuantizeConfig(weight={"per_axis": False})
    spec.add("Dense", is_keras_class=True, quantize_input=False, quantize_config=config)
    x = samples(model, 64)
    errors = []
    for version in (model, equalize_scales(model)):
        q_model = qdq.quantize_model(version, quantization_spec=spec)
        errors.append(np.square(np.asarray(q_model(x)) - np.asarray(model(x))).mean())
    assert errors[1] < 0.01 * errors[0]


def test_what_cannot_be_scaled_stays():
    keras.utils.set_random_seed(0)
    image = keras.Input((8, 8, 4), name="image")
    first = layers.Conv2D(4, 3, padding="same", activation="relu6", name="capped")(image)
    second = layers.Conv2D(4, 3, padding="same", name="branching")(first)
    third = layers.Conv2D(4, 3, padding="same", groups=2, name="grouped")(layers.ReLU()(second))
    added = layers.Add()([second, third])
    model = uneven(keras.Model(image, layers.Conv2D(2, 1, name="last")(added)))
    equalized = equalize_scales(model)
    for name in ("capped", "branching", "grouped", "last"):
        np.testing.assert_array_equal(equalized.get_layer(name).kernel, model.get_layer(name).kernel)


def test_layers_with_low_rank_updates_stay():
    keras.utils.set_random_seed(0)
    image = keras.Input((4,), name="image")
    hidden = image
    for name in ("first", "second", "third"):
        hidden = layers.Dense(4, activation="relu", name=name)(hidden)
    model = uneven(keras.Model(image, layers.Dense(2, name="last")(hidden)))
    model.get_layer("second").enable_lora(2)
    equalized = equalize_scales(model)
    assert relative_difference(model, equalized, samples(model)) < 1e-5
    stayed = {
        layer.name: np.array_equal(layer.kernel, equalized.get_layer(layer.name).kernel) for layer in model.layers[1:]
    }
    assert stayed == {"first": True, "second": True, "third": False, "last": False}


def test_dead_channels_do_not_explode():
    model = chain()
    kernel = model.get_layer("conv2").kernel.numpy()
    kernel[..., 0] = 0.0
    kernel[..., 1] = 1e-30
    model.get_layer("conv2").kernel.assign(kernel)
    equalized = equalize_scales(model)
    assert all(np.isfinite(w).all() for w in equalized.get_weights())
    assert relative_difference(model, equalized, samples(model)) < 1e-5


def test_unknown_method():
    with pytest.raises(QuantizerError, match="method='widths'"):
        equalize_scales(chain(), "widths")


def test_moments_of_a_rectified_gaussian():
    mean, deviation = np.array([0.3, -1.0, 2.0, 0.5, -0.5]), np.array([1.0, 0.5, 0.1, 0.0, 0.0])
    drawn = np.maximum(np.random.default_rng(0).normal(mean, deviation, (1_000_000, 5)), 0)
    first, second = rectified_moments(mean, deviation)
    np.testing.assert_allclose(first, drawn.mean(axis=0), atol=2e-3)
    np.testing.assert_allclose(second, drawn.var(axis=0), atol=2e-3)
