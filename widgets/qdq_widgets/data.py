"""The user's data for Keras and for calibration: arrays with labels, datasets, generators."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from qdq_widgets.errors import BenchError
from qdq_widgets.plain_numbers import whole

BATCHES_OF_TRAINING_DATA = 16
VERIFIED_SAMPLES = 128


@dataclasses.dataclass(frozen=True)
class BenchData:
    """The data of a bench.

    Args:
        train: Labelled data to fine-tune on.
        validation: Labelled data to score on.
        calibration: Data to calibrate on; labels are ignored.
    """

    train: Any = None
    validation: Any = None
    calibration: Any = None

    def __post_init__(self) -> None:
        for name in ("train", "validation"):  # labelled data in a list are a pair too; a list of inputs has no labels
            data = getattr(self, name)
            if isinstance(data, list) and len(data) in (2, 3):
                object.__setattr__(self, name, tuple(data))

    def for_calibration(self) -> tuple[Any, int | None]:
        """Return the data to calibrate on, and the maximum number of batches; None for all.

        Raises:
            BenchError: If there are neither calibration nor training data.
        """
        if self.calibration is not None:
            return self.calibration, None
        if self.train is not None:
            return inputs_only(self.train), BATCHES_OF_TRAINING_DATA
        raise BenchError(
            "Calibration needs data. Give some to the bench: Workbench(model, calibration_data=images), or "
            "train_data=(images, labels). Received: neither"
        )

    def for_scoring(self) -> Any:
        """Return the data to measure on: the validation data, else those to calibrate on.

        Raises:
            BenchError: If there are none.
        """
        return self.for_calibration()[0] if self.validation is None else self.validation

    @property
    def scored_samples(self) -> int | None:
        """The number of validation samples; None if it is not known or there are none."""
        return None if self.validation is None else count_samples(self.validation)

    def for_verification(self) -> Any:
        """Return a few samples to verify a file on; None if the bench has no data."""
        for data in (self.validation, self.calibration, self.train):
            if data is not None:
                return few_samples(data, VERIFIED_SAMPLES)
        return None


def fit_arguments(data: Any, what: str) -> dict[str, Any]:
    """Return the data as keyword arguments of `fit` and `evaluate`.

    Data are a pair or triple (inputs, labels[, sample weights]), a `tf.data.Dataset`, a Keras `PyDataset`, or a
    generator of batches; `what` names them, such as "train_data", in the `BenchError` for missing data or labels.
    """
    if data is None:
        raise BenchError(
            f"This step needs labelled data. Give them to the bench: Workbench(model, {what}=(inputs, labels)), or "
            f"a tf.data.Dataset. Received: {what}=None"
        )
    if isinstance(data, (tuple, list)):
        if len(data) not in (2, 3):
            raise BenchError(
                f"{what} must be (inputs, labels) or (inputs, labels, sample_weights). "
                f"Received: {type(data).__name__} of length {len(data)}"
            )
        return dict(zip(("x", "y", "sample_weight"), data, strict=False))
    if hasattr(data, "shape"):
        raise BenchError(
            f"{what} holds inputs without labels; pass a pair: {what}=(inputs, labels). "
            f"Received: an array of shape {tuple(data.shape)}"
        )
    return {"x": data}


@contextlib.contextmanager
def names_misfits(model: Any, data: Any, what: str) -> Iterator[None]:
    """Turn the error of Keras for data that do not fit a model into a `BenchError` with the shapes of both."""
    try:
        yield
    except Exception as error:
        # TensorFlow's errors derive from `Exception` alone; module and error code tell them.
        of_backend = type(error).__module__.startswith("tensorflow") and hasattr(error, "error_code")
        if not (isinstance(error, (ValueError, TypeError)) or of_backend):
            raise
        said = next((line.strip() for line in _message(error).splitlines() if line.strip()), type(error).__name__)
        raise BenchError(
            f"{what} and the model do not fit: {said[:300]} The model reads {_shapes(model.inputs)} and gives "
            f"{_shapes(model.outputs)}. Received: {what}={described(data)}"
        ) from error


def _message(error: BaseException) -> str:
    """Return the message of an error, without the graph trace that TensorFlow puts before it."""
    text = str(error)
    _, found, rest = text.partition("Detected at node")
    return rest[rest.rfind(")") + 1 :] or text if found and ")" in rest else text


def _shapes(tensors: Any) -> str:
    return ", ".join(f"({', '.join('?' if n is None else str(n) for n in tensor.shape)})" for tensor in tensors)


def described(data: Any) -> str:
    """Return the shapes and types of data, in a few words.

    Example:
        >>> import numpy as np
        >>> described((np.zeros((8, 3), "float32"), np.zeros(8, "int64")))
        '((8, 3) float32, (8,) int64)'
    """
    data = getattr(data, "element_spec", data)
    if isinstance(data, (tuple, list)) and len(data) <= 8:
        return f"({', '.join(map(described, data))})"
    if isinstance(data, Mapping):
        return f"{{{', '.join(f'{name!r}: {described(part)}' for name, part in data.items())}}}"
    if hasattr(data, "shape") and hasattr(data, "dtype"):
        return f"{tuple(data.shape)} {getattr(data.dtype, 'name', data.dtype)}"
    return type(data).__name__


def batch_count(data: Any, batch_size: int) -> int | None:
    """Return the number of batches; None for data without a length. `batch_size` applies to arrays."""
    # The inputs of a pair, then one of several inputs: each array tells the number of samples.
    if isinstance(data, (tuple, list)) and data:
        data = data[0]
    if isinstance(data, Mapping) and data:
        data = next(iter(data.values()))
    if isinstance(data, (tuple, list)) and data:
        data = data[0]
    if hasattr(data, "shape") and len(data.shape):
        return -(-int(data.shape[0]) // batch_size)
    try:
        # Raises TypeError for a `tf.data.Dataset` of unknown or infinite length, too.
        return len(data)
    except TypeError:
        return None


def inputs_only(data: Any) -> Any:
    """Return the inputs of a tuple (inputs, labels[, sample weights]); other data are returned as they are."""
    # A list is several inputs of a model, not a pair: `BenchData` makes tuples of labelled data in lists.
    if isinstance(data, tuple) and len(data) in (2, 3):
        return data[0]
    return data


def few_pairs(data: Any, count: int) -> Any:
    """Return the first samples of arrays, with their labels; other data are returned as they are.

    Raises:
        BenchError: If the count is not a whole number of 1 or more.
    """
    count = whole(count)
    if not isinstance(count, int) or isinstance(count, bool) or count < 1:
        raise BenchError(f"samples must be a whole number of 1 or more. Received: samples={count!r}")
    if isinstance(data, tuple):
        return tuple(few_pairs(part, count) for part in data)
    if isinstance(data, Mapping):
        return {name: few_pairs(part, count) for name, part in data.items()}
    # A list of arrays is several inputs; any other list holds batches, which stay whole.
    if isinstance(data, list) and all(hasattr(part, "shape") for part in data):
        return [few_pairs(part, count) for part in data]
    return data[:count] if hasattr(data, "shape") else data


def count_samples(data: Any) -> int | None:
    """Return the number of samples of arrays or pairs of arrays; None for other data."""
    import keras

    inputs = inputs_only(data)
    arrays = keras.tree.flatten(inputs) if isinstance(inputs, (Mapping, list, tuple)) else [inputs]
    counts = {len(array) for array in arrays if getattr(array, "shape", ())}
    return counts.pop() if len(counts) == 1 else None


def kind_of_data(data: Any) -> str:
    """Return the kind of inputs, for generated code: "array", "dict", "list" (of inputs), "dataset" or "stream"."""
    inputs = inputs_only(data)
    if hasattr(inputs, "shape"):
        return "array"
    if isinstance(inputs, Mapping):
        return "dict"
    if isinstance(inputs, (list, tuple)) and all(hasattr(part, "shape") for part in inputs):
        return "list"
    return "dataset" if hasattr(inputs, "take") else "stream"


def few_samples(data: Any, count: int, batch_size: int = 32) -> Any:
    """Return the first samples without labels; a generator is returned as it is.

    Batches of an iterable are assumed to have `batch_size` samples.
    """
    inputs = inputs_only(data)
    if hasattr(inputs, "shape"):
        return inputs[:count]
    if isinstance(inputs, Mapping):
        return {name: array[:count] for name, array in inputs.items()}
    if isinstance(inputs, (list, tuple)) and all(hasattr(array, "shape") for array in inputs):
        return [array[:count] for array in inputs]
    batches = max(1, count // batch_size)
    # After the arrays: NumPy's `take` selects by index.
    if hasattr(inputs, "take"):
        return inputs.take(batches)
    if isinstance(inputs, Iterable) and not hasattr(inputs, "__next__"):
        return list(itertools.islice(inputs, batches))
    return inputs
