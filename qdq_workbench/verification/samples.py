"""Samples to run a file or a model on, read from the forms of data that `calibrate` accepts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import keras
import numpy as np
import onnx

from qdq_workbench.calibration.batches import input_batches, named_inputs
from qdq_workbench.conversion.engine.sample_rows import are_first_rows
from qdq_workbench.errors import DataError
from qdq_workbench.graph_builder import input_structure
from qdq_workbench.onnx_graph.batches import first_batch
from qdq_workbench.onnx_graph.sessions import fed_inputs

_MAX_SAMPLES = 256


def samples_of_file(proto: onnx.ModelProto, data: Any, count: int = _MAX_SAMPLES) -> dict[str, np.ndarray]:
    """Return at most `count` samples by input name of a file, in the types of its inputs.

    DataError is raised if they do not fit the file.
    """
    ends = fed_inputs(proto)
    arrays = read_samples(named_inputs({name: shape for name, (shape, _) in ends.items()}), data, count)
    return {name: array.astype(dtype) for (name, (_, dtype)), array in zip(ends.items(), arrays, strict=True)}


def read_samples(model: Any, data: Any, count: int = _MAX_SAMPLES) -> list[np.ndarray]:
    """Return one array per model input of at most `count` samples, or of one batch if only some are batched.

    DataError is raised if the data, in any form that `calibrate` takes, do not fit, or hold NaN or infinity.
    """
    parts: list[list[np.ndarray]] = []
    read, tables = 0, _has_tables(model)
    for batch in input_batches(model, data):
        parts.append([np.asarray(array) for array in batch])
        read += len(parts[-1][0])
        # An input with a size of its own, such as a table, belongs to its batch.
        if read >= count or tables:
            break
    arrays = [np.concatenate(columns) for columns in zip(*parts, strict=True)]
    arrays = arrays if tables else [array[:count] for array in arrays]
    for tensor, array in zip(model.inputs, arrays, strict=True):
        if not np.isfinite(np.asarray(array, np.float64)).all():
            raise DataError(
                f"The data of input {tensor.name!r} hold NaN or infinity, which no grid can hold; drop such samples. "
                f"Received: {int((~np.isfinite(np.asarray(array, np.float64))).sum())} such values"
            )
    return arrays


def divisible_samples(proto: onnx.ModelProto, model: keras.Model, inputs: Mapping[str, np.ndarray]) -> dict[str, Any]:
    """Return the samples by input name, or one batch of a file with a fixed one if an output depends on the batch."""
    batch = first_batch(proto, inputs)
    split = [name for name, array in batch.items() if np.shape(array) != np.shape(inputs[name])]
    if not split:
        return dict(inputs)
    few, many = (_outputs(model, [*samples.values()]) for samples in (batch, inputs))
    return dict(inputs) if are_first_rows(few, many, len(inputs[split[0]])) else batch


def _outputs(model: keras.Model, arrays: list[np.ndarray]) -> list[np.ndarray]:
    packed = keras.tree.pack_sequence_as(input_structure(model), arrays)
    return [np.asarray(value) for value in keras.tree.flatten(model(packed, training=False))]


def _has_tables(model: Any) -> bool:
    """Return whether some inputs have an open first axis and others a fixed one."""
    return len({tensor.shape[0] is None for tensor in model.inputs if len(tensor.shape)}) > 1
