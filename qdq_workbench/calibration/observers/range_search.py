"""Choosing the range whose grid is nearest to the values of a histogram.

For a candidate range r, Q_r(x) is the fake quantization of x on the grid that r gives. With x_i the middle of bin i
and c_i its count, a search returns

    argmin over r of  error(x, c, Q_r(x))            for example  sum_i c_i * |x_i - Q_r(x_i)|^p

Clipping moves values far, a wide range has coarse steps: the error weighs one against the other (Nagel et al. 2021,
arXiv:2106.08295, section 3.1). Candidates are k / K of the range seen, k = 1..K:

    symmetric grid     one threshold t = k / K * max(-low, high), hence the range [max(low, -t), min(high, t)]
    asymmetric grid    one end, where all values have one sign (behind a ReLU: [0, high * k / K]); else both ends are
                       shrunk together, then each in turn while the error falls
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from qdq_workbench.quantizers import numerics
from qdq_workbench.spec.quantizer_spec import QuantizerSpec

Array = npt.NDArray[Any]
ErrorFunction = Callable[[Array, Array, Array, Array], float]
ROUNDS = 8


class RangeSearch:
    """The search for one tensor.

    Args:
        values: Values, such as the middles of a histogram's bins.
        counts: How often each occurs.
        spec: The grid.
        error: Error of (values, counts, fake-quantized values, whether each was clipped).
        candidates: How many fractions of the range are tried.
    """

    def __init__(
        self, values: Array, counts: Array, spec: QuantizerSpec, error: ErrorFunction, candidates: int
    ) -> None:
        occurring = counts > 0
        self._values = np.asarray(values[occurring], np.float32)
        self._counts = np.asarray(counts[occurring], np.float64)
        self._spec = spec.replace(axis=None, block_size=None)
        self._error = error
        self._fractions = np.arange(candidates, 0, -1) / candidates  # of equal errors the widest range wins
        self._known: dict[tuple[float, float], float] = {}

    def best(self, low: float, high: float) -> tuple[float, float]:
        """Return the best range within the range seen.

        Args:
            low: Lowest value seen.
            high: Highest value seen.
        """
        if not numerics.SMALLEST_WIDTH <= max(-low, high) <= numerics.LARGEST_END:
            return low, high
        if self._spec.symmetric:
            thresholds = (float(fraction * max(-low, high)) for fraction in self._fractions)
            return self._least([(_cut(low, t), _cut(high, t)) for t in thresholds])
        if low >= 0 or high <= 0:
            return self._least(self._one_ended(low, high))
        fractions = [float(fraction) for fraction in self._fractions]
        found = self._least([(low * k, high * k) for k in fractions])
        for _ in range(ROUNDS):
            before = found
            found = self._least([found, *((found[0], high * k) for k in fractions)])
            found = self._least([found, *((low * k, found[1]) for k in fractions)])
            if found == before:
                break
        return found

    def _one_ended(self, low: float, high: float) -> list[tuple[float, float]]:
        """Shrink the end that is away from 0; a range needs its lower end below the upper one."""
        if high <= 0:
            return [(low * k, max(high, low * k)) for k in map(float, self._fractions)]
        return [(min(low, high * k), high * k) for k in map(float, self._fractions)]

    def _least(self, ranges: list[tuple[float, float]]) -> tuple[float, float]:
        new = [ends for ends in dict.fromkeys(ranges) if ends not in self._known]
        if new:  # the grids of all at once: for a few values the checks of a grid take longer than its error
            lows, highs = np.transpose(new)
            grids = numerics.qparams_from_range(lows, highs, self._spec)
            zeros = grids.zero_point.astype(np.float32)
            self._known.update(zip(new, map(self._error_on, grids.scale, zeros), strict=True))
        return min(ranges, key=self._known.__getitem__)  # of equal ones the first

    def _error_on(self, scale: np.float32, zero: np.float32) -> float:
        codes = np.rint(self._values / scale) + zero
        inside = np.clip(codes, self._spec.qmin, self._spec.qmax)
        return self._error(self._values, self._counts, (inside - zero) * scale, codes != inside)


def _cut(value: float, threshold: float) -> float:
    return max(-threshold, min(threshold, value))


def power_error(power: float) -> ErrorFunction:
    """Return the error sum_i c_i * |x_i - Q(x_i)|^power.

    Args:
        power: 1 for absolute, 2 for squared errors.
    """

    def error(values: Array, counts: Array, quantized: Array, clipped: Array) -> float:  # noqa: ARG001 (the interface)
        difference = np.abs(values.astype(np.float64) - quantized)
        return float(np.dot(counts, difference**power if power != 2 else difference * difference))

    return error
