"""CIFAR-10 images and a trained ResNet-8: a sample in tests/data, and more in the optional ../shared.

The images (Krizhevsky 2009) are JPEGs of quality 75: 512 for training and 500 for testing, the first of each split of
`../shared/data/cifar10_jpeg.npz`. The network is MLPerf Tiny's ResNet-8 (mlcommons/tiny, Apache-2.0), fine-tuned on
such images: 78,666 parameters, inputs of 0..255.
"""

import itertools

import keras
import numpy as np
import tensorflow as tf
from project import ROOT

DATA = ROOT / "tests" / "data"
SAMPLE = DATA / "cifar10_sample.npz"


def trained_network() -> keras.Model:
    """Return the trained ResNet-8."""
    return keras.models.load_model(DATA / "resnet8_cifar.keras", compile=False)


def images(split: str, count: int, path=SAMPLE) -> tuple[np.ndarray, np.ndarray]:
    """Return the first images of a split, float32 of shape (count, 32, 32, 3), and their classes.

    Args:
        split: "train" or "test".
        count: How many.
        path: The archive; the sample by default.
    """
    with np.load(path) as held:
        encoded, offsets, classes = held[f"jpeg_{split}"].tobytes(), held[f"off_{split}"], held[f"y_{split}"]
    if count > len(classes):
        raise ValueError(f"{path.name} has {len(classes)} images in {split!r}. Received: count={count}")
    decoded = [
        # TensorFlow's default method differs from Pillow's in single bits.
        tf.io.decode_jpeg(encoded[start:end], dct_method="INTEGER_ACCURATE").numpy()
        for start, end in itertools.pairwise(offsets[: count + 1])
    ]
    return np.stack(decoded).astype(np.float32), classes[:count]
