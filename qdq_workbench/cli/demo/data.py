"""Images and labels for the demo: scikit-learn's digits, or a .npz file of your own."""

from __future__ import annotations

import dataclasses
import itertools
from typing import Any

import numpy as np

from qdq_workbench._pages import page
from qdq_workbench.cli.inputs import read_arrays
from qdq_workbench.errors import DataError

# 8x8 pixels are too few for three resolutions, so each pixel becomes a block of 2x2.
_DIGITS_MAGNIFIED = 2
# The digits have the grey levels 0 to 16.
_DIGITS_MAXIMUM = 16.0
_TEST_SHARE = 0.4
_JPEG_KEYS = ("jpeg_train", "off_train", "y_train", "jpeg_test", "off_test", "y_test")
OTHER_MODELS = (
    "Models with several inputs, and data that are no images, go through the commands quantize, export and verify: "
    f"{page('first_file.md', 'The same on the command line')}."
)
_ARRAY_KEYS = ("x_train", "y_train", "x_test", "y_test")


@dataclasses.dataclass(frozen=True)
class ImageData:
    """Images with labels, split into training and test.

    Args:
        name: Name of the data, for headings.
        x_train: Training images, float32 [N, height, width, channels].
        y_train: Their classes, int64 [N].
        x_test: Test images, float32 [M, height, width, channels].
        y_test: Their classes, int64 [M].

    Raises:
        DataError: If shapes do not fit each other, or a value is not finite.
    """

    name: str
    x_train: np.ndarray
    y_train: np.ndarray
    x_test: np.ndarray
    y_test: np.ndarray

    def __post_init__(self) -> None:
        shapes = [array.shape for array in (self.x_train, self.y_train, self.x_test, self.y_test)]
        fits = (
            self.x_train.ndim == 4
            and self.x_train.shape[1:] == self.x_test.shape[1:]
            and self.y_train.shape == self.x_train.shape[:1]
            and self.y_test.shape == self.x_test.shape[:1]
            and self.x_train.size > 0
            and self.x_test.size > 0
        )
        if not fits:
            raise DataError(
                "Images must be [N, height, width, channels], with one class number per image and the same size in "
                f"training and test. Received: shapes {shapes} of x_train, y_train, x_test, y_test in {self.name}"
            )
        if not (np.isfinite(self.x_train).all() and np.isfinite(self.x_test).all()):
            raise DataError(f"The images hold NaN or infinity; remove those. Received: {self.name}")

    @property
    def classes(self) -> int:
        """The number of classes."""
        return int(max(self.y_train.max(), self.y_test.max())) + 1

    def scaled(self) -> ImageData:
        """Return the images divided by the maximum of the training images, for training a network from scratch."""
        factor = np.float32(1.0 / max(float(self.x_train.max()), 1e-6))
        return dataclasses.replace(self, x_train=self.x_train * factor, x_test=self.x_test * factor)


def load_images(path: str | None = None) -> ImageData:
    """Return the images of a file, with the values in it; for None, scikit-learn's digits from 0 to 1.

    A .npz file holds `x_train, y_train, x_test, y_test`, or JPEG bytes: `jpeg_train`, `off_train`, `y_train` and the
    same for `test`, where image i is `jpeg[off[i]:off[i+1]]`.
    """
    if path is None:
        return _digits()
    found = read_arrays(path)
    # The key is for the error below, which lists what was received.
    arrays = found if isinstance(found, dict) else {"one array without a name": found}
    if set(_JPEG_KEYS) <= set(arrays):
        arrays["x_train"] = _decode(arrays["jpeg_train"], arrays["off_train"])
        arrays["x_test"] = _decode(arrays["jpeg_test"], arrays["off_test"])
    if not set(_ARRAY_KEYS) <= set(arrays):
        raise DataError(
            f"The demo takes images of classes: a .npz file with {', '.join(_ARRAY_KEYS)}, x [N, height, width, "
            "channels] as the model expects them and y one class number per image, such as "
            "numpy.savez('images.npz', x_train=..., y_train=..., x_test=..., y_test=...); or JPEG bytes as "
            f"{', '.join(_JPEG_KEYS)}. {OTHER_MODELS} Received: {sorted(arrays)} in {path!r}"
        )
    return ImageData(
        path.replace("\\", "/").rsplit("/", maxsplit=1)[-1],
        _images(arrays["x_train"]),
        _labels(arrays["y_train"]),
        _images(arrays["x_test"]),
        _labels(arrays["y_test"]),
    )


def _digits() -> ImageData:
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split

    digits = load_digits()
    block = np.ones((_DIGITS_MAGNIFIED, _DIGITS_MAGNIFIED), np.float32)
    images = np.kron(digits.images.astype(np.float32) / _DIGITS_MAXIMUM, block)[..., np.newaxis]
    x_train, x_test, y_train, y_test = train_test_split(
        images, digits.target.astype(np.int64), test_size=_TEST_SHARE, stratify=digits.target, random_state=0
    )
    return ImageData("scikit-learn's digits", x_train, y_train, x_test, y_test)


def _decode(jpeg: np.ndarray, offsets: np.ndarray) -> np.ndarray:
    import tensorflow as tf

    contents = jpeg.tobytes()
    try:
        return np.stack(
            [
                # The default method differs from the reference decoder by some grey levels.
                tf.io.decode_jpeg(contents[start:end], dct_method="INTEGER_ACCURATE").numpy()
                for start, end in itertools.pairwise(offsets)
            ]
        )
    except (tf.errors.InvalidArgumentError, ValueError) as error:
        raise DataError(f"The JPEG images cannot be decoded to one size: {str(error)[:300]}") from error


def _images(array: Any) -> np.ndarray:
    images = np.asarray(array, np.float32)
    # Grey images may lack the axis of channels, as those of MNIST do.
    return images[..., np.newaxis] if images.ndim == 3 else images


def _labels(array: Any) -> np.ndarray:
    # Labels may be a column [N, 1], as Keras has those of CIFAR.
    return np.asarray(array, np.int64).reshape(-1)
