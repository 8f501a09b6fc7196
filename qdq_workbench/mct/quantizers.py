"""MCT's quantization functions on arrays, with the names in its `DEFAULT_KERAS_INFO`.

The library itself quantizes by the grids of its targets; these functions are the values of the mappings of a
`FrameworkInfo`, and can be called directly.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from qdq_workbench import QuantizerSpec, numerics
from qdq_workbench.calibration.observers.power_of_two import rounded_up
from qdq_workbench.post_training.codebook import clustered


def constraint_quantization(values: npt.ArrayLike, n_bits: int = 8, axis: int | None = None) -> np.ndarray:
    """Return the values rounded to symmetric grids whose thresholds are powers of two.

    Args:
        values: Array of any shape.
        n_bits: Width of the grid.
        axis: The axis along which every slice has its own threshold; None per tensor.

    Example:
        >>> constraint_quantization([-0.8, 0.3], n_bits=3).tolist()
        [-0.75, 0.25]
    """
    array, spec = np.asarray(values, np.float32), QuantizerSpec(num_bits=n_bits, axis=axis)
    low, high = numerics.weight_range(array, spec)
    ends = [rounded_up(pair, spec, "scale") for pair in zip(low.ravel().tolist(), high.ravel().tolist(), strict=True)]
    low, high = np.reshape(np.transpose(ends), (2, *low.shape))
    return numerics.fake_quantize(array, numerics.qparams_from_range(low, high, spec))


def symmetric_uniform_quantizer(values: npt.ArrayLike, n_bits: int = 8, axis: int | None = None) -> np.ndarray:
    """Return the values rounded to symmetric grids whose threshold is the largest magnitude.

    Args:
        values: Array of any shape.
        n_bits: Width of the grid.
        axis: The axis along which every slice has its own threshold; None per tensor.

    Example:
        >>> symmetric_uniform_quantizer([-3.0, 1.2], n_bits=3).tolist()
        [-3.0, 1.0]
    """
    array = np.asarray(values, np.float32)
    spec = QuantizerSpec(num_bits=n_bits, narrow_range=True, axis=axis)
    return numerics.fake_quantize(array, numerics.qparams_from_range(*numerics.weight_range(array, spec), spec))


def kmeans_quantizer(values: npt.ArrayLike, n_bits: int = 8, axis: int | None = None) -> np.ndarray:
    """Return the values replaced by the nearest of `2 ** n_bits` cluster centres.

    Args:
        values: Array of any shape.
        n_bits: Width of the codes.
        axis: The axis along which every slice has its own clusters; None per tensor.

    Example:
        >>> kmeans_quantizer([0.0, 0.5, 4.0, 4.5], n_bits=1).tolist()
        [0.25, 0.25, 4.25, 4.25]
    """
    return clustered(np.asarray(values, np.float32), n_bits, "kmeans", QuantizerSpec(axis=axis))


def lut_kmeans_quantizer(values: npt.ArrayLike, n_bits: int = 4, axis: int | None = None) -> np.ndarray:
    """Return the values replaced by the nearest of `2 ** n_bits` cluster centres, rounded to an 8-bit grid.

    Args:
        values: Array of any shape.
        n_bits: Width of the codes.
        axis: The axis along which every slice has its own clusters; None per tensor.

    Example:
        >>> [round(float(value), 4) for value in lut_kmeans_quantizer([-1.27, -1.27, 0.5, 0.514], n_bits=1)]
        [-1.27, -1.27, 0.51, 0.51]
    """
    return clustered(np.asarray(values, np.float32), n_bits, "lut", QuantizerSpec(narrow_range=True, axis=axis))
