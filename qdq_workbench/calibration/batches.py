"""Conversion of all supported forms of data to checked batches of model inputs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from qdq_workbench._interrupts import released_between
from qdq_workbench._progress import is_count
from qdq_workbench.errors import DataError
from qdq_workbench.graph_builder import input_structure

_ADVICE = (
    "Pass an array of samples, a tf.data.Dataset, or an iterable of batches; a batch is an array, a tuple "
    "(inputs, labels), or a list or dict of arrays for a model with several inputs."
)


def input_batches(model: keras.Model, data: Any, batch_size: int = 32) -> Iterator[list[Any]]:
    """Yield the inputs of every batch, in the model's input order; raise DataError for no data, or unfit ones.

    `data` are samples as one array (or one per input, also in a tuple with labels behind them), a `tf.data.Dataset`, a
    Keras `PyDataset`, a function that returns an iterable, or an iterable of batches. Labels are ignored; as many
    labels as inputs, of their shapes, are taken for a second batch: give a dataset then.
    """
    _check_batch_size(batch_size)
    found = 0
    for position, batch in enumerate(released_between(_batches(model, data, batch_size))):
        inputs = _inputs_of(model, batch)
        _check(model, inputs, position)
        found += 1
        yield inputs
    if not found:
        raise DataError(f"There is no data: not a single batch could be read. {_ADVICE} Received: {_describe(data)}")


def batch_count(model: keras.Model, data: Any, batch_size: int = 32) -> int | None:
    """Return the number of batches that `input_batches` will yield; None if it is unknown.

    Raises:
        DataError: If `batch_size` is not an integer from 1 on, or the data lack an input of the model.
    """
    _check_batch_size(batch_size)
    # `input_batches` refuses these with advice; the length of a text is no number of batches.
    if data is None or isinstance(data, (str, bytes)):
        return None
    samples = None if isinstance(data, keras.utils.PyDataset) else _samples(model, data)
    try:
        return len(data) if samples is None else -(-len(samples[0]) // batch_size)
    except TypeError:  # no length, or a tf.data.Dataset of unknown or infinite length
        return None


def _check_batch_size(batch_size: Any) -> None:
    if not is_count(batch_size):
        raise DataError(f"batch_size must be an integer from 1 on. Received: batch_size={batch_size!r}")


def _batches(model: keras.Model, data: Any, batch_size: int) -> Iterator[Any]:
    if data is None or isinstance(data, (str, bytes)):
        raise DataError(f"Calibration needs data. {_ADVICE} Received: {data!r}")
    if callable(data) and not isinstance(data, (Iterable, keras.utils.PyDataset)):
        data = data()
    if isinstance(data, keras.utils.PyDataset):
        yield from (data[index] for index in range(len(data)))
    elif (samples := _samples(model, data)) is not None:
        for array in samples:
            _shape_of(array, "The data")
        # Another number of arrays is refused at the first batch, by `_inputs_of`, with the names of the inputs.
        if len(samples) == len(model.inputs):
            _check_counts(model, samples, "data")
        if np.ndim(samples[0]) == 0:
            raise DataError(f"The data are a single number. {_ADVICE} Received: shape ()")
        count = len(samples[0])
        for start in range(0, count, batch_size):
            yield [array[start : start + batch_size] for array in samples]
    elif isinstance(data, Iterable):
        yield from data
    else:
        raise DataError(f"The data cannot be read. {_ADVICE} Received: {_describe(data)}")


def _samples(model: keras.Model, data: Any) -> list[Any] | None:
    """Return the arrays of all samples, one per input, if the data are arrays; else None."""
    if _is_array(data):
        return [data]
    if isinstance(data, Mapping):
        return _in_order(model, data)
    if isinstance(data, tuple) and len(data) in (2, 3):  # perhaps (inputs, labels[, sample weights])
        inputs, labels = data[:2]
        if len(model.inputs) == 1 and _is_array(inputs):
            return [inputs]
        if isinstance(inputs, Mapping) and not _could_be_inputs(model, labels):
            return _in_order(model, inputs)
        if _are_arrays(model, inputs) and not _could_be_inputs(model, labels):
            return list(inputs)
    return list(data) if len(model.inputs) > 1 and _are_arrays(model, data) else None


def _are_arrays(model: keras.Model, value: Any) -> bool:
    """Return whether a value is a list or tuple with one array per input."""
    return isinstance(value, (list, tuple)) and len(value) == len(model.inputs) and all(map(_is_array, value))


def _could_be_inputs(model: keras.Model, value: Any) -> bool:
    """Return whether what follows a dict or a list of inputs could be a second batch of them, rather than labels."""
    if isinstance(value, Mapping):
        return not {*_names(model), *(_keys(model) or ())}.isdisjoint(value)
    return _are_arrays(model, value) and all(
        _has_shape(array, tensor.shape) for array, tensor in zip(value, model.inputs, strict=True)
    )


def _has_shape(array: Any, shape: tuple[int | None, ...]) -> bool:
    """Return whether an array has the shape of an input, whatever the number of samples."""
    own = np.shape(array)
    return len(own) == len(shape) and all(size in (None, real) for real, size in zip(own[1:], shape[1:], strict=True))


def _inputs_of(model: keras.Model, batch: Any) -> list[Any]:
    """Return the flat model inputs of one batch, without labels."""
    if has_labels(model, batch) or (isinstance(batch, tuple) and len(batch) == 1):
        batch = batch[0]
    if isinstance(batch, Mapping):
        return _in_order(model, batch)
    inputs = list(batch) if isinstance(batch, (list, tuple)) else [batch]
    if len(inputs) != len(model.inputs):
        raise DataError(
            f"The model has {len(model.inputs)} inputs ({', '.join(_names(model))}), a batch must hold as many. "
            f"{_ADVICE} Received: a batch with {len(inputs)}"
        )
    return inputs


def named_inputs(shapes: Mapping[str, Sequence[int | None]], name: str = "") -> Any:
    """Return all that reading data asks of a Keras model, for a file with inputs of these shapes, the batch first."""
    tensors = [SimpleNamespace(name=key, shape=tuple(shape)) for key, shape in shapes.items()]
    return SimpleNamespace(name=name, inputs=tensors, _inputs_struct=tensors)


def has_labels(model: keras.Model, batch: Any) -> bool:
    """Return whether a batch is (inputs, labels[, sample weights]), as a tuple, or as a list as in PyTorch."""
    if not isinstance(batch, (list, tuple)) or len(batch) not in (2, 3):
        return False
    if isinstance(batch, tuple):
        return not _is_input_tuple(model, batch)
    count = len(batch[0]) if isinstance(batch[0], (list, tuple, Mapping)) else int(_is_array(batch[0]))
    return count == len(model.inputs) and all(_is_array(array) for array in keras.tree.flatten(batch[0]))


def _is_input_tuple(model: keras.Model, batch: tuple[Any, ...]) -> bool:
    """Return whether a tuple holds one array per input, each of the input's rank, rather than inputs and labels."""
    if len(batch) != len(model.inputs) or len(batch) < 2:
        return False
    return all(_is_array(x) and len(np.shape(x)) == len(t.shape) for x, t in zip(batch, model.inputs, strict=True))


def _in_order(model: keras.Model, arrays: Mapping[str, Any]) -> list[Any]:
    keys = _keys(model)
    if keys is not None and all(key in arrays for key in keys):
        return [arrays[key] for key in keys]
    names = _names(model)
    missing = [name for name in names if name not in arrays]
    if missing and keys is not None:
        raise DataError(
            f"The data lack an input; the model takes a dictionary with the keys {keys}. Received: {sorted(arrays)}"
        )
    if missing:
        raise DataError(
            f"The data lack the input {missing[0]!r}; the model's inputs are {names}. Received: {sorted(arrays)}"
        )
    return [arrays[name] for name in names]


def _keys(model: keras.Model) -> list[Any] | None:
    """Return the keys of a model that takes a dictionary, in input order; they may differ from the input names."""
    structure = input_structure(model)
    if not isinstance(structure, Mapping) or any(keras.tree.is_nested(value) for value in structure.values()):
        return None
    keys = {id(tensor): key for key, tensor in structure.items()}
    return [keys[id(tensor)] for tensor in model.inputs]


def _names(model: keras.Model) -> list[str]:
    """Return the names of the model's inputs."""
    return [tensor.name for tensor in model.inputs]


def _check_counts(model: keras.Model, inputs: list[Any], what: str) -> None:
    """Raise DataError unless all inputs with a dynamic batch size have the same number of samples."""
    shapes = {
        name: np.shape(array)
        for name, array, tensor in zip(_names(model), inputs, model.inputs, strict=True)
        if tensor.shape[0] is None
    }
    counts = {name: shape[0] for name, shape in shapes.items() if shape}
    if len(set(counts.values())) > 1:
        raise DataError(f"All inputs must have as many samples as each other. Received: {what} with {counts} samples")


def _check(model: keras.Model, inputs: list[Any], position: int) -> None:
    for name, array, tensor in zip(_names(model), inputs, model.inputs, strict=True):
        shape, expected = _shape_of(array, f"Batch {position} of input {name!r}"), tuple(tensor.shape)
        # The batch axis is left out: a model for a fixed batch size also computes other sizes.
        fits = len(shape) == len(expected) and all(
            want is None or have == want for have, want in zip(shape[1:], expected[1:], strict=True)
        )
        if not fits:
            raise DataError(
                f"Batch {position} does not fit input {name!r}: its shape must be {expected}, batch first. "
                f"Received: shape {shape}"
            )
        if not _holds_numbers(array):
            raise DataError(
                f"Batch {position} of input {name!r} does not hold real numbers. "
                f"Received: dtype {getattr(array, 'dtype', None)}"
            )
        if 0 in shape:
            raise DataError(f"Batch {position} of input {name!r} is empty. Received: shape {shape}")
    _check_counts(model, inputs, f"batch {position}")


def _shape_of(array: Any, what: str) -> tuple[int | None, ...]:
    """Return the shape of a dense array; raise DataError for sparse, ragged and nested data of unequal sizes."""
    if isinstance(array, tf.SparseTensor) or hasattr(array, "tocsr"):  # SciPy's matrices have the latter
        raise DataError(
            f"{what} must be a dense array; tf.sparse.to_dense(x), or x.toarray() of a SciPy matrix, makes one. "
            f"Received: {type(array).__name__}"
        )
    if isinstance(array, tf.RaggedTensor):
        raise DataError(
            f"{what} must be an array of samples of one size; x.to_tensor() fills a ragged tensor up. "
            f"Received: {type(array).__name__}"
        )
    try:
        return tuple(np.shape(array))
    except ValueError as error:
        raise DataError(
            f"{what} must be an array of samples of one size: fill the shorter ones up, tokens with "
            f"keras.utils.pad_sequences say. Received: a {_describe(array)} whose parts differ in size"
        ) from error


def _holds_numbers(array: Any) -> bool:
    # Judged by name: the dtypes of NumPy, TensorFlow and PyTorch have nothing else in common.
    dtype = getattr(array, "dtype", None) or np.asarray(array).dtype
    name = str(getattr(dtype, "name", dtype))
    return name == "bool" or any(kind in name for kind in ("int", "float"))


def _is_array(value: Any) -> bool:
    return hasattr(value, "shape") and hasattr(value, "dtype")


def _describe(data: Any) -> str:
    return f"{type(data).__name__}" + (f" of length {len(data)}" if hasattr(data, "__len__") else "")
