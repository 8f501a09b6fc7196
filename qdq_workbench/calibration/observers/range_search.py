"""Search for the range with the least quantization error of a histogram's values.

For a candidate range r, Q_r(x) is the fake quantization of x on the grid that r gives. With x_i the middle of bin i
and c_i its count, a search returns

    argmin over r of  error(x, c, Q_r(x))            for example  sum_i c_i * |x_i - Q_r(x_i)|^p

A narrow range has a large clipping error, a wide range a large rounding error (Nagel et al. 2021, arXiv:2106.08295,
section 3.1). Candidates are k / K of the range seen, k = 1..K:

    symmetric grid     one threshold t = k / K * max(-low, high), hence the range [max(low, -t), min(high, t)]
    asymmetric grid    one end, if all values have one sign (after a ReLU: [0, high * k / K]); else both ends are
                       shrunk together, then each in turn while the error decreases
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from qdq_workbench.quantizers import numerics
from qdq_workbench.spec.quantizer_spec import QuantizerSpec

Array = npt.NDArray[Any]
ErrorFunction = Callable[[Array, Array, Array, Array], float]
ROUNDS = 8  # at most; the search ends as soon as neither end moves
# Values that are quantized in one operation, on several grids where they are few: a slice of a weight often has nine.
_AT_ONCE = 1 << 15


class RangeSearch:
    """The search for one tensor.

    Args:
        values: Values, such as the middles of a histogram's bins.
        counts: The count of each value.
        spec: The grid; its axis and blocks are ignored.
        error: A function of (values, counts, fake-quantized values, whether each was clipped).
        candidates: The number of fractions of the range to try.
    """

    def __init__(
        self, values: Array, counts: Array, spec: QuantizerSpec, error: ErrorFunction, candidates: int
    ) -> None:
        occurring = counts > 0
        self._values = np.asarray(values[occurring], np.float32)
        self._counts = np.asarray(counts[occurring], np.float64)
        self._spec = spec.replace(axis=None, block_size=None)
        self._error = error
        self._fractions = np.arange(candidates, 0, -1) / candidates  # descending: the widest of equal errors wins
        self._known: dict[tuple[float, float], float] = {}

    def best(self, low: float, high: float) -> tuple[float, float]:
        """Return the range with the least error within the range seen, [low, high]."""
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
            # `found` comes first, so that it stays unless a candidate is better, and the search ends.
            found = self._least([found, *((found[0], high * k) for k in fractions)])
            found = self._least([found, *((low * k, found[1]) for k in fractions)])
            if found == before:
                break
        return found

    def _one_ended(self, low: float, high: float) -> list[tuple[float, float]]:
        """Return candidates that shrink the end farther from 0, without the ends crossing."""
        if high <= 0:
            return [(low * k, max(high, low * k)) for k in map(float, self._fractions)]
        return [(min(low, high * k), high * k) for k in map(float, self._fractions)]

    def _least(self, ranges: list[tuple[float, float]]) -> tuple[float, float]:
        new = [ends for ends in dict.fromkeys(ranges) if ends not in self._known]
        if new:  # all grids in one call: its argument checks take longer than the error of a few values
            lows, highs = np.transpose(new)
            grids = numerics.qparams_from_range(lows, highs, self._spec)
            zeros = grids.zero_point.astype(np.float32)
            self._known.update(zip(new, self._errors_on(grids.scale, zeros), strict=True))
        return min(ranges, key=self._known.__getitem__)  # the first of equal ones

    def _errors_on(self, scales: Array, zeros: Array) -> Iterator[float]:
        """Yield the error on each grid."""
        rows = max(1, _AT_ONCE // max(1, len(self._values)))
        for start in range(0, len(scales), rows):
            scale, zero = scales[start : start + rows, np.newaxis], zeros[start : start + rows, np.newaxis]
            codes = np.rint(self._values / scale) + zero
            inside = np.clip(codes, self._spec.qmin, self._spec.qmax)
            for quantized, clipped in zip((inside - zero) * scale, codes != inside, strict=True):
                yield self._error(self._values, self._counts, quantized, clipped)


def _cut(value: float, threshold: float) -> float:
    return max(-threshold, min(threshold, value))


def power_error(power: float) -> ErrorFunction:
    """Return the error sum_i c_i * |x_i - Q(x_i)|^power."""

    def error(values: Array, counts: Array, quantized: Array, clipped: Array) -> float:  # noqa: ARG001 (the interface)
        difference = np.abs(values.astype(np.float64) - quantized)
        return float(np.dot(counts, difference**power if power != 2 else difference * difference))

    return error
