"""Lower bounds on the scales of a weight so that its layer's bias fits into int32.

    b_q = round(b / (s_x * s_w)),   |b_q| <= 2^30        the other half of int32 is left to the accumulator
    s_w >= |b| / (2^30 * s_x)

A weight slice whose values are all zero is exact at any scale, so it gets the smallest scale at which its bias fits:
the bias then has its finest step, with a relative error of at most 2^-31.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from qdq_workbench.quantizers.blocks import other_axes
from qdq_workbench.spec.quantizer_spec import QuantizerSpec

#: The largest magnitude of a bias's code, so that bias and accumulator together stay within int32.
BIAS_LIMIT = 2**30
_ROOM = 1.0 + 2.0**-20  # margin so that float32 rounding cannot move a bias code past the limit
_SMALLEST = 2.0**-126  # for steps and scales: a normal float32, which no processor flushes to zero
_LARGEST_SCALE = 2.0**100  # a bias that needs a larger weight scale stays in float
_NOTHING = 2.0**-90  # a bias with a smaller magnitude counts as 0


def bias_scale(input_scale: np.ndarray, weight_scale: np.ndarray) -> np.ndarray:
    """Return the scale of a bias: the float32 product of the input's and the weight's scale."""
    return np.asarray(np.asarray(input_scale, np.float32) * np.asarray(weight_scale, np.float32), np.float32)


def bias_codes(bias: np.ndarray, scale: np.ndarray) -> np.ndarray | None:
    """Return the int32 codes of a bias of shape (C,); None if one exceeds 2^30 in magnitude or a scale is 0.

    Example:
        >>> bias_codes(np.array([0.5, -0.25]), np.float32(0.125))
        array([ 4, -2], dtype=int32)
    """
    if not np.all(scale):
        return None
    # In float64: float32 cannot hold all codes up to 2^30.
    codes = np.rint(np.asarray(bias, np.float64) / np.asarray(scale, np.float64))
    if np.any(np.abs(codes) > BIAS_LIMIT):
        return None
    return codes.astype(np.int32)


def least_weight_scale(bias: np.ndarray, input_scale: np.ndarray) -> np.ndarray:
    """Return the smallest float32 weight scales, in the bias's shape, at which a bias fits into int32.

    Example:
        >>> round(float(least_weight_scale(np.array(0.5), np.array(0.25))) * 2**30, 3)
        2.0
    """
    step = np.maximum(np.abs(np.asarray(bias, np.float64)) * _ROOM / BIAS_LIMIT, _SMALLEST)
    return np.asarray(np.clip(step / np.float64(input_scale), _SMALLEST, _LARGEST_SCALE), np.float32)


def make_room_for_bias(
    codes: np.ndarray,
    scale: np.ndarray,
    zero_point: np.ndarray,
    spec: QuantizerSpec,
    bias: np.ndarray,
    input_scales: Sequence[np.ndarray],
) -> tuple[np.ndarray, np.ndarray]:
    """Return the integers and scales of a weight with which its bias fits into int32 in every call of the layer.

    All-zero slices get the smallest scale at which their bias fits. The scales of other slices whose bias would
    overflow are raised, and these slices are quantized again.

    `scale` has rank 0, or one value per slice along the grid's axis; `bias` one value per scale, or any shape for a
    scale of rank 0; `input_scales` the scale of the layer's input in every call whose input is quantized.
    """
    scale = _fit_dead_scales(codes, scale, zero_point, spec.axis, bias, input_scales)
    if not input_scales:
        return codes, scale
    # Raised once, for the input with the smallest scale: a slice that is quantized again twice is rounded twice.
    floor = np.max([least_weight_scale(bias, input_scale) for input_scale in input_scales], axis=0)
    return raise_scales(codes, scale, zero_point, spec, floor)


def raise_scales(
    codes: np.ndarray, scale: np.ndarray, zero_point: np.ndarray, spec: QuantizerSpec, floor: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return the integers and scales of a weight with scales below a floor raised and their slices quantized again.

    `scale` has rank 0, or one value per slice along the grid's axis; `floor` one value per scale, or for a scale of
    rank 0 any shape: its maximum is the floor.
    """
    least = floor.max(initial=np.float32(0)) if spec.axis is None else floor
    if np.all(scale >= least):
        return codes, scale
    raised = np.maximum(scale, np.nextafter(least, np.float32(np.inf)))
    shape = _along(spec.axis, codes.ndim)
    zero = np.reshape(zero_point, shape)
    values = ((codes.astype(np.int32) - zero).astype(np.float32) * np.reshape(scale, shape)).astype(np.float64)
    again = np.clip(np.rint(values / np.reshape(raised, shape)) + zero, spec.qmin, spec.qmax)
    return np.where(np.reshape(raised > scale, shape), again, codes).astype(codes.dtype), raised


def _along(axis: int | None, rank: int) -> list[int]:
    """Return the shape that broadcasts one value per scale against the integers."""
    return [-1 if axis is not None and index == axis % rank else 1 for index in range(rank)]


def _fit_dead_scales(
    codes: np.ndarray,
    scale: np.ndarray,
    zero_point: np.ndarray,
    axis: int | None,
    bias: np.ndarray,
    input_scales: Sequence[np.ndarray],
) -> np.ndarray:
    """Return a weight's scales with those of its all-zero slices replaced by the smallest that fit their biases."""
    # Without a quantized input there is no int32 bias to make room for.
    if not input_scales or codes.size == 0:
        return scale
    dead = np.all(codes == np.reshape(zero_point, _along(axis, codes.ndim)), axis=other_axes(codes.ndim, axis))
    size = np.abs(np.asarray(bias, np.float64))
    size = size.max(initial=0.0) if axis is None else size
    least = np.max([least_weight_scale(size, input_scale) for input_scale in input_scales], axis=0)
    return np.where(dead & (size >= _NOTHING), np.nextafter(least, np.float32(np.inf)), scale).astype(np.float32)
