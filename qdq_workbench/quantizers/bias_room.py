"""What an int32 bias asks of the scales of the weight that it goes with.

    b_q = round(b / (s_x * s_w)),   |b_q| <= 2^30        the other half of int32 is left to the accumulator
    s_w >= |b| / (2^30 * s_x)

A slice of a weight whose codes all stand for 0 is zero under every scale, so it takes the smallest one under which its
bias fits: that is the finest step that a bias can have, and exact to a part in 2^31.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from qdq_workbench.quantizers.numerics import other_axes

BIAS_LIMIT = 2**30
_ROOM = 1.0 + 2.0**-20  # so that rounding in float32 cannot carry a bias code past the limit
_SMALLEST = 2.0**-126  # step or scale: it stays a normal float32, which no processor flushes to zero
_LARGEST_SCALE = 2.0**100  # a bias that asks for more stays float
_NOTHING = 2.0**-90  # a bias below it counts as 0


def least_weight_scale(bias: np.ndarray, input_scale: np.ndarray) -> np.ndarray:
    """Return the smallest weight scales under which a bias fits into int32.

    Args:
        bias: Float bias.
        input_scale: Scale of the layer's input, rank 0.

    Returns:
        float32 scales of the bias's shape.

    Example:
        >>> round(float(least_weight_scale(np.array(0.5), np.array(0.25))) * 2**30, 3)
        2.0
    """
    step = np.maximum(np.abs(np.asarray(bias, np.float64)) * _ROOM / BIAS_LIMIT, _SMALLEST)
    return np.asarray(np.clip(step / np.float64(input_scale), _SMALLEST, _LARGEST_SCALE), np.float32)


def fit_dead_scales(
    codes: np.ndarray,
    scale: np.ndarray,
    zero_point: np.ndarray,
    axis: int | None,
    bias: np.ndarray,
    input_scales: Sequence[np.ndarray],
) -> np.ndarray:
    """Return a weight's scales with those of its all-zero slices made as fine as their biases can have them.

    Args:
        codes: The weight's integers.
        scale: float32; rank 0, or one value per slice along `axis`.
        zero_point: Integers of the scale's shape.
        axis: The axis of the scales, or None.
        bias: Float bias with one value per scale, or of any shape for a scale of rank 0.
        input_scales: Scale of the layer's input at every call whose input is quantized.
    """
    if not input_scales or codes.size == 0:
        return scale
    shape = [-1 if axis is not None and index == axis % codes.ndim else 1 for index in range(codes.ndim)]
    dead = np.all(codes == np.reshape(zero_point, shape), axis=other_axes(codes.ndim, axis))
    size = np.abs(np.asarray(bias, np.float64))
    size = size.max(initial=0.0) if axis is None else size
    least = np.max([least_weight_scale(size, input_scale) for input_scale in input_scales], axis=0)
    return np.where(dead & (size >= _NOTHING), np.nextafter(least, np.float32(np.inf)), scale).astype(np.float32)
