"""The samples that choose and evaluate the rounding."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from qdq_workbench.calibration.batches import input_batches
from qdq_workbench.calibration.data_scale import input_ranges, warn_of_scale
from qdq_workbench.conversion.engine.quantized_model import QuantizedModel
from qdq_workbench.errors import DataError, UncalibratedError

Array = npt.NDArray[Any]
_HELD_BACK, _LEAST_SAMPLES = 8, 16


def read_samples(q_model: QuantizedModel, data: Any, batch_size: int, seed: int) -> list[Array]:
    """Return all samples, one finite array per input, in a random order: the last ones are held out."""
    batches = list(input_batches(q_model, data, batch_size))
    warn_of_scale(input_ranges(q_model), batches)
    arrays = []
    for index, tensor in enumerate(q_model.inputs):
        dtype = "float32" if tensor.dtype == "bfloat16" else tensor.dtype  # NumPy has no bfloat16
        parts = [np.asarray(batch[index]) for batch in batches]
        if len({part.shape[1:] for part in parts}) > 1:
            raise DataError(
                "The samples must be of one size, since all of them are kept in one array; fill the shorter ones up. "
                f"Received: input {tensor.name!r} with batches of shapes {sorted({part.shape for part in parts})[:4]}"
            )
        array = np.concatenate(parts).astype(dtype)
        if np.issubdtype(array.dtype, np.floating) and not np.isfinite(array).all():
            raise DataError(
                f"The data hold NaN or infinity, from which nothing can be learned; drop such samples. Received: input "
                f"{tensor.name!r} with {int((~np.isfinite(array)).sum())} such values"
            )
        arrays.append(array)
    if len({len(array) for array in arrays}) > 1:
        counts = {tensor.name: array.shape for tensor, array in zip(q_model.inputs, arrays, strict=True)}
        raise DataError(
            "Every sample needs a row of each input, since samples are drawn one by one; repeat those of an input with "
            f"a fixed batch size. Received: all batches together {counts}"
        )
    order = np.random.default_rng(seed).permutation(len(arrays[0]))
    return [array[order] for array in arrays]


def held_back_of(count: int) -> int:
    """Return how many of `count` samples are held out to evaluate the rounding: an eighth, or 0 below 16 samples."""
    return count // _HELD_BACK if count >= _LEAST_SAMPLES else 0


def check_calibrated(q_model: QuantizedModel) -> None:
    """Raise `UncalibratedError` if activations have no range yet.

    Raises:
        UncalibratedError: If one has none.
    """
    missing = q_model.uncalibrated_tensors()
    if missing:
        raise UncalibratedError(
            "Activations have no range yet, so nobody knows what the quantized layers will read. Run "
            f"calibrate(q_model, data) first. Received: no range for {missing[:3]}"
        )
