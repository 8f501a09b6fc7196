"""Positions of sequences that a mask leaves out, such as the padding behind `Embedding(mask_zero=True)` or `Masking`.

Statistics of what a layer reads leave padding out, as training does. It counts for a layer that does not support
masking: such a layer reads padding like any other value, and Keras drops the mask there.

Ranges of activations are different: they cover padding, too. The exported file computes padded positions with the same
grids, and a layer further behind may read them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Counts = npt.NDArray[np.bool_]


def mask_of(value: Any, *readers: Any) -> Any:
    """Return the mask of a tensor, False for padding; None if it has none that belongs to its first axes.

    `value` is the result of a layer's call; if one of the layers that read it does not support masking, there is no
    mask.
    """
    mask = getattr(value, "_keras_mask", None)
    if mask is None or not all(getattr(reader, "supports_masking", False) for reader in readers):
        return None
    rank = len(mask.shape)
    sizes = zip(mask.shape, value.shape[:rank], strict=False)
    fits = rank <= len(value.shape) and all(a == b or a is None or b is None for a, b in sizes)
    return mask if fits else None


def counted(shape: tuple[int, ...], mask: npt.NDArray[Any] | None) -> Counts:
    """Return which values of an array of this shape count; the axes of the mask are the first ones of the array."""
    found = (
        np.ones((), bool) if mask is None else mask.astype(bool).reshape(*mask.shape, *[1] * (len(shape) - mask.ndim))
    )
    return np.broadcast_to(found, shape)


def rows_of(values: npt.NDArray[Any], mask: npt.NDArray[Any] | None = None, *, axis: int = -1) -> tuple[Floats, Counts]:
    """Return values as (N, channels), and whether each of them counts: a padded one is 0 and does not."""
    return all_rows_of(values, mask, axis=axis)[1:]


def all_rows_of(
    values: npt.NDArray[Any], mask: npt.NDArray[Any] | None = None, *, axis: int = -1
) -> tuple[Floats, Floats, Counts]:
    """Return values as (N, channels), padded ones included; the same with 0 for these; and whether each counts."""

    def as_rows(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
        return np.moveaxis(array, axis, -1).reshape(-1, array.shape[axis])

    rows = as_rows(values).astype(np.float64)
    if mask is None:
        return rows, rows, counted(rows.shape, None)
    counts = as_rows(counted(values.shape, mask))
    return rows, np.where(counts, rows, 0.0), counts
