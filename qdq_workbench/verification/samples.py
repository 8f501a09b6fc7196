"""The samples that a file or a model is run on."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx

from qdq_workbench.calibration.batches import input_batches
from qdq_workbench.errors import DataError
from qdq_workbench.onnx_graph.sessions import fed_inputs

_MAX_SAMPLES = 256


def samples_of_file(proto: onnx.ModelProto, data: Any, count: int = _MAX_SAMPLES) -> dict[str, np.ndarray]:
    """Return samples by name of the file's input, in its types.

    Args:
        proto: The file.
        data: The samples, in any form that `calibrate` takes.
        count: How many to read at most.

    Raises:
        DataError: If the data do not fit the file.
    """
    ends = fed_inputs(proto)
    tensors = [SimpleNamespace(name=name, shape=shape) for name, (shape, _) in ends.items()]
    arrays = read_samples(SimpleNamespace(inputs=tensors, _inputs_struct=tensors), data, count)
    return {name: array.astype(dtype) for (name, (_, dtype)), array in zip(ends.items(), arrays, strict=True)}


def read_samples(model: Any, data: Any, count: int = _MAX_SAMPLES) -> list[np.ndarray]:
    """Return samples per input of anything that has inputs as a Keras model has them.

    Args:
        model: The model.
        data: The samples, in any form that `calibrate` takes.
        count: How many to read at most.

    Raises:
        DataError: If the data do not fit the model, or hold NaN or infinity.
    """
    parts: list[list[np.ndarray]] = []
    read = 0
    for batch in input_batches(model, data):
        parts.append([np.asarray(array) for array in batch])
        read += len(parts[-1][0])
        if read >= count:
            break
    arrays = [np.concatenate(columns)[:count] for columns in zip(*parts, strict=True)]
    for tensor, array in zip(model.inputs, arrays, strict=True):
        if not np.isfinite(np.asarray(array, np.float64)).all():
            raise DataError(
                f"The data of input {tensor.name!r} hold NaN or infinity, which no grid can hold; drop such samples. "
                f"Received: {int((~np.isfinite(np.asarray(array, np.float64))).sum())} such values"
            )
    return arrays
