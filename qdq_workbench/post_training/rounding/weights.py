"""Learned rounding of a weight: for every value whether it is rounded down or up.

AdaRound (Nagel et al. 2020, arXiv:2004.10568), equations 22 to 24, with zeta = 1.1 and gamma = -0.1:

    w~ = s * clamp(floor(w / s) + h(v), qmin - z, qmax - z)
    h(v) = clamp(sigmoid(v) * (zeta - gamma) + gamma, 0, 1)
    f(v) = sum of 1 - |2 h(v) - 1|^beta                             which drives every h to 0 or 1

v starts where w~ = w. The scale does not change: if it is computed from the weight's own range, the ends of that range
keep their values, and all other values are clipped to them.
"""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import numpy.typing as npt
import tensorflow as tf

from qdq_workbench.quantizers import numerics
from qdq_workbench.quantizers.blocks import spread
from qdq_workbench.quantizers.numerics import QParams

ZETA, GAMMA = 1.1, -0.1
Array = npt.NDArray[Any]


class LearnedWeight:
    """A quantized weight whose rounding is learned.

    Args:
        name: `<layer>/<weight>`.
        variable: The Keras variable, which holds the float weight.
        qparams: Its grid.
        own_range: Whether the grid is computed from the weight's present values.
    """

    def __init__(self, name: str, variable: Any, qparams: QParams, *, own_range: bool) -> None:
        self.name, self.variable, self.qparams = name, variable, qparams
        self.values = np.array(keras.ops.convert_to_numpy(variable), np.float32)
        spec, shape = qparams.spec, self.values.shape
        self._scale = spread(qparams.scale, shape, spec)
        self._zero = spread(qparams.zero_point, shape, spec).astype(np.float32)
        low, high = (spread(end, shape, spec) for end in range_ends(self.values, qparams, own_range=own_range))
        lowest = np.clip(np.rint(low / self._scale) + self._zero, spec.qmin, spec.qmax)
        highest = np.clip(np.rint(high / self._scale) + self._zero, spec.qmin, spec.qmax)
        self._bounds = (low, high) if own_range else None
        place = self.values / self._scale + self._zero
        self._below = np.clip(np.floor(place), lowest, highest)
        above = np.clip(np.floor(place) + 1, lowest, highest)
        self._nearest = np.clip(np.rint(self.values / self._scale) + self._zero, lowest, highest)
        on_grid = np.abs(place - np.rint(place)) < 1e-4  # learned before, or the end of the range
        self._free = (above > self._below) & ~on_grid
        if own_range:
            self._free &= (self.values != low) & (self.values != high)
        # Well inside (0, 1), because beyond its ends the clamp of h passes no gradient.
        fraction = np.clip(place - self._below, 0.01, 0.99)
        start = -np.log((ZETA - GAMMA) / (fraction - GAMMA) - 1.0)
        self.start = np.where(self._free, start, 0.0).astype(np.float32)

    @property
    def free(self) -> int:
        """Number of values that can be rounded both down and up."""
        return int(self._free.sum())

    def soft(self, state: Any) -> Any:
        """Return the weight between its two roundings, as a tensor with a gradient for the state."""
        codes = tf.where(self._free, self._below + rectified_sigmoid(state), self._nearest)
        return (codes - self._zero) * self._scale

    def penalty(self, state: Any, beta: Any) -> Any:
        """Return the sum of 1 - |2h - 1|^beta over the values that can be rounded both ways."""
        distance = tf.abs(2.0 * rectified_sigmoid(state) - 1.0)
        return tf.reduce_sum(tf.where(self._free, 1.0 - distance**beta, 0.0))

    def rounded(self, state: Array) -> Array:
        """Return the new values of the variable: on the grid, except the ends of the range, which do not change."""
        codes = np.where(
            self._free,
            self._below + (state >= 0.0),  # where h(v) >= 1/2
            self._nearest,
        )
        values = ((codes - self._zero) * self._scale).astype(np.float32)
        if self._bounds is None:
            return values
        low, high = self._bounds
        ends = (self.values == low) | (self.values == high)
        return np.where(ends, self.values, np.clip(values, low, high)).astype(np.float32)

    def changed(self, values: Array) -> int:
        """Return how many values have another code than the nearest one."""
        return int((self._codes(values) != self._codes(self.values)).sum())

    def _codes(self, values: Array) -> Array:
        return numerics.quantize(values, self.qparams).astype(np.int32)


def rectified_sigmoid(state: Any) -> Any:
    """Return h(v)."""
    return tf.clip_by_value(tf.sigmoid(state) * (ZETA - GAMMA) + GAMMA, 0.0, 1.0)


def range_ends(values: Array, qparams: QParams, *, own_range: bool) -> tuple[Array, Array]:
    """Return the lowest and the highest value that a weight may take, in the shape of the scales.

    With `own_range`, the grid is computed from these values, so that the ends of their range must not change.
    """
    if not own_range:
        return qparams.representable_range
    low, high = numerics.weight_range(values, qparams.spec)
    if qparams.spec.symmetric:
        end = np.maximum(-low, high)
        return -end, end
    return np.minimum(low, 0.0), np.maximum(high, 0.0)
