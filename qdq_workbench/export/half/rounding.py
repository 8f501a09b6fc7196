"""Rounding of constants and scales to half precision, and the bounds on its error.

A constant fits if rounding moves it by no more than the unit roundoff `u`, as it moves every computed value:

    |fl(c) - c| <= u * |c|             factors, and single numbers such as an epsilon
    |fl(c) - c| <= u * max |c|         weights and biases, whose small values are added to large ones

A scale `s` has to keep its integers apart. Its rounding moves the value of code `q` by `|q - z| * |fl(s) - s|`, so it
fits if the outermost code moves by no more than an eighth of a step (rounding to the grid moves it by half a step):

    max |q - z| * |fl(s) - s| <= s / 8

All normal scales of 8-bit integers fit into float16 (128 * 2**-11 = 1/16), few fit into bfloat16 (128 * 2**-8 = 1/2),
and those of 16-bit integers fit into neither.
"""

from __future__ import annotations

import numpy as np
from onnx import TensorProto, helper

from qdq_workbench.errors import ExportError
from qdq_workbench.graph.half_precision import HalfType

LARGEST_SHIFT = 1 / 8  # of a step
_SLACK = 1 + 2.0**-20  # bounds are computed in float64, of constants in float32


def element_type(kind: HalfType) -> int:
    """Return the ONNX element type of a half-precision type."""
    return int(TensorProto.DataType.Value(kind.name.upper()))


def numpy_type(kind: HalfType) -> np.dtype:
    """Return the numpy type of a half-precision type.

    Raises:
        ExportError: If the installed onnx has no arrays of it.
    """
    dtype = np.dtype(helper.tensor_dtype_to_np_dtype(element_type(kind)))
    if dtype.itemsize != 2:
        raise ExportError(
            f"The installed onnx package holds no {kind.name} arrays; update it (1.19 does), or use "
            f"float_type='float16'. Received: float_type={kind.name!r}"
        )
    return dtype


def rounded(values: np.ndarray, kind: HalfType) -> np.ndarray:
    """Return values in half precision, rounded to nearest."""
    with np.errstate(over="ignore", under="ignore"):
        return np.asarray(values).astype(numpy_type(kind))


def constant_fits(values: np.ndarray, kind: HalfType, *, elementwise: bool) -> bool:
    """Return whether a float32 constant may be written in half precision.

    If `elementwise`, every element must keep its relative precision; else the tensor as a whole.
    """
    wide = np.asarray(values, np.float64)
    # Infinities are the same in every type; their difference would be NaN.
    finite = np.isfinite(wide)
    wide = wide[finite]
    if not wide.size:
        return True
    error = np.abs(rounded(values, kind)[finite].astype(np.float64) - wide)
    size = np.abs(wide) if elementwise else np.abs(wide).max()
    return bool(np.all(error <= kind.roundoff * size * _SLACK))


def scale_fits(scale: np.ndarray, farthest: np.ndarray, kind: HalfType) -> bool:
    """Return whether scales may be written in half precision; `farthest` is the largest |code - zero point| of each."""
    wide = np.asarray(scale, np.float64)
    error = np.abs(rounded_scale(scale, kind).astype(np.float64) - wide)
    return bool(np.all(np.where(farthest > 0, farthest * error, 0.0) <= LARGEST_SHIFT * wide))


def rounded_scale(scale: np.ndarray, kind: HalfType) -> np.ndarray:
    """Return scales in half precision, raised to the smallest normal number, because 0 is no scale."""
    return rounded(np.maximum(np.asarray(scale, np.float32), np.float32(kind.normal)), kind)
