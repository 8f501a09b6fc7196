"""The networks that several benchmarks measure, without trained weights: speed does not depend on the values."""

import argparse
import functools
from collections.abc import Callable

import architectures
import keras
import numpy as np
import tensorflow as tf
from keras import layers

SIZE = 64  # the images of the networks of keras.applications, where nothing else is said
APPLICATIONS = {"mobilenet_v2": "MobileNetV2", "resnet50": "ResNet50"}


def resnet8() -> keras.Model:
    """MLPerf Tiny's ResNet-8 for images of 32x32."""
    return architectures.resnet8(keras)


def application(name: str, size: int = SIZE) -> keras.Model:
    """A network of keras.applications for square images."""
    return getattr(keras.applications, name)(weights=None, input_shape=(size, size, 3), classes=10)


def chain(length: int) -> keras.Model:
    """A network of `length` layers: convolution, batch normalization, ReLU, and an Add every twelve layers."""
    x = image = keras.Input((8, 8, 4))
    skip, count = x, 0
    while count < length:
        x = layers.ReLU()(layers.BatchNormalization()(layers.Conv2D(4, 3, padding="same")(x)))
        count += 3
        if count % 12 == 0:
            x = skip = layers.Add()([x, skip])
            count += 1
    return keras.Model(image, x)


NETWORKS: dict[str, Callable[[], keras.Model]] = {
    "resnet8": resnet8,
    **{name: functools.partial(application, title) for name, title in APPLICATIONS.items()},
}


def in_batches(images: np.ndarray, size: int) -> tf.data.Dataset:
    """Return images in batches, for times by the clock.

    The iterator of a dataset that TensorFlow tunes, as that of arrays, ends with a wait: until 10, 30, 70, 150 ...
    milliseconds after its beginning (TensorFlow 2.21).
    """
    options = tf.data.Options()
    options.autotune.enabled = False
    return tf.data.Dataset.from_tensor_slices(images.reshape(-1, size, *images.shape[1:])).with_options(options)


def arguments_for(description: str | None) -> argparse.ArgumentParser:
    """Return a parser of the command lines that name networks; a benchmark adds options of its own.

    Args:
        description: The benchmark's documentation, shown by `--help`.
    """
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("networks", nargs="*", choices=[*NETWORKS, []], help="which networks; all by default")
    return parser


def chosen(options: argparse.Namespace) -> list[str]:
    """Return the networks that the command line names, or all of them."""
    return options.networks or list(NETWORKS)
