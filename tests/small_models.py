"""Tiny Keras models for tests of conversion, calibration and export."""

import contextlib

import keras
import numpy as np
from keras import layers, ops


def residual_net(seed=1):
    """A small residual CNN with batch normalizations that do something."""
    keras.utils.set_random_seed(seed)
    image = keras.Input((8, 8, 2), name="image")
    stem = layers.Conv2D(4, 3, padding="same", use_bias=False, name="stem")(image)
    stem = layers.BatchNormalization(name="stem_norm")(stem)
    stem = layers.ReLU(name="stem_relu")(stem)
    branch = layers.Conv2D(4, 3, padding="same", name="conv")(stem)
    branch = layers.BatchNormalization(name="norm")(branch)
    added = layers.Add(name="add")([branch, stem])
    added = layers.Activation("relu", name="relu")(added)
    pooled = layers.GlobalAveragePooling2D(name="pool")(added)
    scores = layers.Dense(3, name="head")(pooled)
    return shake(keras.Model(image, scores, name="residual_net"))


def nested_net():
    """A backbone inside a model, called twice; a shared layer; operations; training=False at the first call."""
    keras.utils.set_random_seed(2)
    backbone = keras.Sequential(
        [
            keras.Input((8, 8, 2)),
            layers.Conv2D(2, 3, padding="same", name="conv"),
            layers.BatchNormalization(name="norm"),
            layers.ReLU(name="relu"),
        ],
        name="backbone",
    )
    shared = layers.Conv2D(2, 3, padding="same", name="shared")
    image = keras.Input((8, 8, 2), name="image")
    hidden = backbone(image, training=False)
    hidden = shared(hidden) + image
    hidden = shared(ops.relu(hidden))
    hidden = backbone(hidden)
    pooled = layers.GlobalAveragePooling2D(name="pool")(hidden)
    return shake(keras.Model(image, layers.Dense(3, name="head")(pooled), name="nested_net"))


def two_headed_net():
    """Two inputs in a dictionary, two outputs in a dictionary, a concatenation."""
    keras.utils.set_random_seed(3)
    left, right = keras.Input((6,), name="left"), keras.Input((4,), name="right")
    joined = layers.Concatenate(name="concat")([layers.Dense(5, name="a")(left), layers.Dense(5, name="b")(right)])
    outputs = {"first": layers.Dense(2, name="first")(joined), "second": layers.Dense(3, name="second")(joined)}
    return shake(keras.Model({"left": left, "right": right}, outputs, name="two_headed_net"))


def shake(model):
    """Give batch normalizations statistics and gains as training would, some gains negative."""
    generator = np.random.default_rng(0)
    for layer in model._flatten_layers():
        if isinstance(layer, layers.BatchNormalization):
            size = layer.gamma.shape
            layer.gamma.assign(generator.uniform(0.5, 1.5, size) * generator.choice([-1, 1], size))
            layer.beta.assign(generator.normal(0, 0.2, size))
            layer.moving_mean.assign(generator.normal(0, 0.2, size))
            layer.moving_variance.assign(generator.uniform(0.5, 2.0, size))
    return model


def shaken(model, spread=1.0):
    """Return a model after giving it weights of which none is zero."""
    generator = np.random.default_rng(1)
    for variable in model.weights:
        if "float" in variable.dtype:
            variable.assign(generator.uniform(-spread, spread, variable.shape))
    return model


@contextlib.contextmanager
def dtype_policy(name):
    """Let layers be made under a dtype policy."""
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy(name)
    try:
        yield
    finally:
        keras.config.set_dtype_policy(before)


def samples(model, count=16, seed=0):
    """Random samples for a model, in the structure that it takes."""
    generator = np.random.default_rng(seed)
    return keras.tree.map_structure(
        lambda tensor: generator.normal(size=(count, *tensor.shape[1:])).astype("float32"), model._inputs_struct
    )


def flat(outputs):
    """Outputs as a flat list of arrays."""
    return [keras.ops.convert_to_numpy(value) for value in keras.tree.flatten(outputs)]
