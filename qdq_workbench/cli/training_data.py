"""Checks of samples and labels before a training begins."""

from __future__ import annotations

from typing import Any

from qdq_workbench.errors import DataError


def check_samples(model: Any, x: Any, y: Any, path: str) -> None:
    """Raise `DataError` unless samples fit the model's inputs, and each has one finite numeric label."""
    import numpy as np

    from qdq_workbench.calibration.batches import input_batches

    count = 0
    for batch in input_batches(model, x, batch_size=1024):
        count += len(batch[0])
        if not all(np.isfinite(array).all() for array in batch):
            raise DataError(f"The samples hold NaN or infinity; drop those. Received: {path!r}")
    if y.ndim == 0 or len(y) != count:
        raise DataError(
            f"There must be as many labels as samples. Received: {count} samples, labels of shape {y.shape} in {path!r}"
        )
    if not (np.issubdtype(y.dtype, np.number) or y.dtype == bool):
        raise DataError(f"Labels must be numbers: classes from 0 on, say. Received: dtype {y.dtype} in {path!r}")
    if not np.isfinite(y).all():
        raise DataError(f"The labels hold NaN or infinity; drop such samples. Received: {path!r}")
