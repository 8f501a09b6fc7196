"""Reads data once into checked batches of inputs, with labels if there are any."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import keras
import numpy as np
import numpy.typing as npt

from qdq_workbench._fingerprints import add_arrays, fingerprint_of
from qdq_workbench._progress import check_count
from qdq_workbench.calibration.batches import has_labels, input_batches
from qdq_workbench.calibration.data_scale import input_ranges, warn_of_scale
from qdq_workbench.errors import DataError
from qdq_workbench.graph_builder import check_model

Array = npt.NDArray[Any]


@dataclasses.dataclass(frozen=True)
class Samples:
    """Data as lists of batches, so that a sweep can run over them many times.

    Args:
        batches: Per batch the flat list of the model's inputs.
        labels: One array per output, over all samples; None without labels.
    """

    batches: list[list[Array]]
    labels: list[Array] | None

    @property
    def count(self) -> int:
        """How many samples there are."""
        return sum(len(batch[0]) for batch in self.batches)

    def digest(self) -> str:
        """Return a hash of all values."""
        return fingerprint_of("", arrays=(*(array for batch in self.batches for array in batch), *(self.labels or ())))

    def shared_with(self, other: Samples) -> int:
        """Return how many samples have inputs that are among those of `other`."""
        known = {mark for batch in other.batches for mark in _hashes(batch)}
        return sum(mark in known for batch in self.batches for mark in _hashes(batch))


class HashedBatches:
    """Batches of model inputs that are hashed while they are read, so that they need not be kept in memory.

    Args:
        batches: Per batch the flat list of a model's inputs.
    """

    def __init__(self, batches: Iterable[list[Any]]) -> None:
        self._batches = batches
        self._samples: list[bytes] = []

    def __iter__(self) -> Iterator[list[Any]]:
        for batch in self._batches:
            self._samples.extend(_hashes(batch))
            yield batch

    def digest(self) -> str:
        """Return a hash of all samples read so far that does not depend on their order: data are often shuffled."""
        return hashlib.sha256(b"".join(sorted(self._samples))).hexdigest()


def read_samples(model: keras.Model, data: Any, batch_size: int = 32, steps: int | None = None) -> Samples:
    """Return the samples and labels of data as `calibrate` takes them; `Samples` are returned as they are.

    Data, and batches, of the form `(inputs, labels)` keep their labels; `batch_size` applies to arrays; None as `steps`
    reads all batches. Data on another scale than those of the calibration give a `DataScaleWarning`.
    """
    if isinstance(data, Samples):
        return data
    check_model(model)
    check_count("steps", steps)
    samples = read_for_inputs(model, data, batch_size, steps)
    warn_of_scale(input_ranges(model), samples.batches)
    return samples


def read_for_inputs(model: Any, data: Any, batch_size: int = 32, steps: int | None = None) -> Samples:
    """Read data as `read_samples` does, without what only a Keras model can be asked.

    `model` is a Keras model, or an object with its attributes `name`, `inputs` and `_inputs_struct`.
    """
    labels: list[list[Array]] = []
    inputs, targets = _split(model, data)
    source = inputs if targets is not None else _collecting(model, inputs, labels)
    batches = []
    for batch in input_batches(model, source, batch_size):
        batches.append([np.asarray(array) for array in batch])
        _check_finite(batches[-1], len(batches) - 1)
        if steps is not None and len(batches) >= steps:
            break
    count = sum(len(batch[0]) for batch in batches)
    if targets is not None:
        _check_lengths(targets, inputs, model)
        return Samples(batches, [array[:count] for array in targets])
    labels = labels[: len(batches)]
    if not labels or not any(labels):
        return Samples(batches, None)
    if len({len(each) for each in labels}) != 1:
        raise DataError("Some batches have labels and others have none; give all of them labels, or none.")
    joined = [np.concatenate(column) for column in zip(*labels, strict=True)]
    return Samples(batches, joined)


def _hashes(batch: list[Any]) -> Iterator[bytes]:
    """Yield a hash of every sample of a batch."""
    for sample in zip(*(np.ascontiguousarray(array) for array in batch), strict=True):
        digest = hashlib.sha256()
        add_arrays(digest, sample)
        yield digest.digest()


def split_samples(samples: Samples) -> tuple[Samples, Samples]:
    """Return two random halves of the samples, drawn with a fixed seed, since data are often sorted or periodic."""
    parts: list[list[list[Array]]] = [[], []]
    # Parities of a permutation, unlike independent draws, make halves that differ by one sample at most.
    first = np.random.default_rng(0).permutation(samples.count) % 2 == 0
    position = 0
    for batch in samples.batches:
        chosen = first[position : position + len(batch[0])]
        position += len(chosen)
        for part, mask in zip(parts, (chosen, ~chosen), strict=True):
            if mask.any():
                part.append([array[mask] for array in batch])
    labels = samples.labels
    return (
        Samples(parts[0], None if labels is None else [array[first] for array in labels]),
        Samples(parts[1], None if labels is None else [array[~first] for array in labels]),
    )


def _check_finite(batch: list[Array], position: int) -> None:
    """Raise `DataError` for NaN and infinity: behind a ReLU they may become finite, so the outputs would hide them."""
    bad = sum(int(np.sum(~np.isfinite(array))) for array in batch if array.dtype.kind == "f")
    if bad:
        raise DataError(
            f"The data are not finite; drop such samples. Received: {bad} values that are NaN or infinite in batch "
            f"{position}"
        )


def _split(model: keras.Model, data: Any) -> tuple[Any, list[Array] | None]:
    """Return inputs and labels of data that are arrays; data of another kind come back as they are."""
    is_pair = isinstance(data, tuple) and len(data) in (2, 3) and _are_inputs(model, data[0])
    if not is_pair or not all(hasattr(leaf, "shape") for leaf in keras.tree.flatten(data[:2])):
        return data, None
    return data[0], [np.asarray(leaf) for leaf in keras.tree.flatten(data[1])]


def _collecting(model: keras.Model, data: Any, labels: list[list[Array]]) -> Any:
    """Return data whose batches append their labels to `labels` as they are read."""
    if callable(data) and not isinstance(data, (Iterable, keras.utils.PyDataset)):
        data = data()
    if isinstance(data, keras.utils.PyDataset):
        data = map(data.__getitem__, range(len(data)))
    is_arrays = hasattr(data, "shape") or isinstance(data, (Mapping, str, bytes))
    several = isinstance(data, (list, tuple)) and len(model.inputs) > 1 and len(data) == len(model.inputs)
    # Arrays hold no labels here: `_split` has taken labelled ones apart. `input_batches` refuses what is no data.
    if is_arrays or several or not isinstance(data, Iterable):
        return data

    def batches() -> Iterator[Any]:
        for batch in data:
            labelled = has_labels(model, batch) and _are_inputs(model, batch[0])
            # An empty entry marks a batch without labels, so that data with some labels are refused.
            labels.append([np.asarray(leaf) for leaf in keras.tree.flatten(batch[1])] if labelled else [])
            yield batch

    return batches()


def _are_inputs(model: keras.Model, candidate: Any) -> bool:
    """Return whether a structure holds a value for every input of the model."""
    return isinstance(candidate, Mapping) or len(keras.tree.flatten(candidate)) == len(model.inputs)


def _check_lengths(labels: list[Array], inputs: Any, model: keras.Model) -> None:
    count = len(keras.tree.flatten(inputs)[0])
    wrong = [array for array in labels if array.ndim == 0 or len(array) != count]
    if wrong:
        raise DataError(
            f"There must be as many labels as samples for model {model.name!r}. Received: {count} samples, labels of "
            f"shape {wrong[0].shape}"
        )
