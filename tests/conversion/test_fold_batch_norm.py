import keras
import numpy as np
import pytest
from keras import layers
from small_models import flat, nested_net, residual_net, samples, shake

from qdq_workbench import fold_batch_norm


def folded_names(model):
    folded = fold_batch_norm(model)
    x = samples(model)
    np.testing.assert_allclose(flat(folded(x))[0], flat(model(x))[0], atol=1e-5)
    return [layer.name for layer in folded.layers if isinstance(layer, layers.BatchNormalization)]


@pytest.mark.parametrize(
    "layer",
    [
        lambda: layers.Conv1D(3, 2),
        lambda: layers.Conv1DTranspose(3, 2),
        lambda: layers.SeparableConv1D(3, 2),
        lambda: layers.DepthwiseConv1D(2, depth_multiplier=2),
        lambda: layers.Dense(3, use_bias=False),
    ],
)
def test_sequences(layer):
    image = keras.Input((6, 4))
    assert folded_names(shake(keras.Model(image, layers.BatchNormalization()(layer()(image))))) == []


@pytest.mark.parametrize(
    "layer",
    [
        lambda: layers.Conv2D(4, 3, groups=2, use_bias=False),
        lambda: layers.Conv2DTranspose(3, 3, strides=2),
        lambda: layers.DepthwiseConv2D(3, use_bias=False),
        lambda: layers.DepthwiseConv2D(3, depth_multiplier=2),
        lambda: layers.SeparableConv2D(3, 3, use_bias=False),
        lambda: layers.Dense(3),
    ],
)
@pytest.mark.parametrize("norm", [{}, {"scale": False}, {"center": False}])
def test_images(layer, norm):
    image = keras.Input((8, 8, 4))
    hidden = layer()(image)
    model = keras.Model(image, layers.BatchNormalization(**norm)(hidden))
    inner = model.layers[-1]
    inner.moving_mean.assign(np.linspace(-1, 1, hidden.shape[-1]))
    inner.moving_variance.assign(np.linspace(0.5, 2, hidden.shape[-1]))
    if inner.scale:
        inner.gamma.assign(np.linspace(-1, 1, hidden.shape[-1]))
    assert folded_names(model) == []


@pytest.mark.parametrize("make", [residual_net, nested_net])
def test_whole_models(make):
    model = make()
    expected = [] if make is residual_net else ["backbone.norm"]  # called twice: it cannot be folded
    assert folded_names(model) == expected


def test_what_cannot_be_folded_stays():
    image = keras.Input((8, 8, 3))
    activated = layers.BatchNormalization(name="behind_relu")(layers.Conv2D(3, 3, activation="relu")(image))
    conv = layers.Conv2D(3, 3)(activated)
    read_twice = layers.BatchNormalization(name="not_alone")(conv)
    other_axis = layers.BatchNormalization(axis=1, name="other_axis")(layers.Conv2D(3, 3, padding="same")(image))
    both = layers.Add()([conv, read_twice])
    model = shake(keras.Model(image, [both, other_axis]))
    assert sorted(folded_names(model)) == ["behind_relu", "not_alone", "other_axis"]
