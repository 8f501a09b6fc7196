"""A range that leaves out the rarest values at both ends, from a histogram made in one pass.

The histogram has bins [k * w, (k + 1) * w) with w a power of two, so that a grown range only ever merges
neighbouring bins: no value is counted twice or moved to another place. At all times

    (highest - lowest) / 4096 < w <= (highest - lowest) / 2048

so there are 2048 to 4097 bins over the range seen. With p percent:

    high    upper edge of the bin of the smallest value v such that p percent of all values are <= v
    low     lower edge of the bin of the largest value v such that p percent of all values are >= v

and neither exceeds the values seen. Each end is therefore off by less than one bin, 1/2048 of the range seen,
and never leaves out more than it should.
"""

from __future__ import annotations

import fractions
import math
from typing import Any

import numpy as np
import numpy.typing as npt

from qdq_workbench.calibration.observers.observer import Observer, register_observer
from qdq_workbench.errors import DataError

BINS = 2048
PIECE = 1 << 16
LEAST_EXPONENT = -202  # 53 bits below float32's smallest number


@register_observer("percentile")
class PercentileObserver(Observer):
    """Range that contains a given percentage of the values at either end; see the top of the file.

    Each end errs by less than one bin: `(highest - lowest value seen) / 2048`.

    Args:
        tensor: Name of the tensor, for error messages.
        percentile: Percentage of the values that either end leaves inside, above 50 and at most 100.

    Raises:
        DataError: If `percentile` is out of bounds.

    Example:
        >>> observer = PercentileObserver("relu1", percentile=90.0)
        >>> observer.update(np.arange(100.0))
        >>> low, high = observer.range()
        >>> 9 <= low <= 10, 89 <= high <= 90
        (True, True)
    """

    def __init__(self, tensor: str, percentile: float = 99.99) -> None:
        super().__init__(tensor)
        if not isinstance(percentile, (int, float, np.floating)) or not 50.0 < percentile <= 100.0:
            raise DataError(f"percentile must be above 50 and at most 100. Received: percentile={percentile!r}")
        self.percentile = float(percentile)
        self._low, self._high = math.inf, -math.inf
        self._exponent = LEAST_EXPONENT  # the width of a bin is 2 ** _exponent
        self._first = 0  # the first bin is [_first * width, (_first + 1) * width)
        self._counts = np.zeros(0, np.int64)

    def observe(self, values: npt.NDArray[Any], low: float, high: float) -> None:
        """Add a batch to the histogram, after widening its bins as far as the batch asks for.

        Args:
            values: The batch.
            low: Its lowest value.
            high: Its highest value.
        """
        self._low, self._high = min(self._low, low), max(self._high, high)
        exponent = max(self._exponent, self._exponent_for(self._low, self._high))
        self._merge_bins(exponent - self._exponent)
        self._exponent = exponent
        first, last = self._bin_of(self._low), self._bin_of(self._high)
        counts = np.zeros(last - first + 1, np.int64)
        start = self._first - first
        counts[start : start + self._counts.size] = self._counts
        self._first, self._counts = first, counts
        self._count(values.reshape(-1), last)

    def result(self) -> tuple[float, float]:
        """Return the two percentiles."""
        total = int(self._counts.sum())
        needed = math.ceil(total * fractions.Fraction(str(self.percentile)) / 100)
        from_below = np.cumsum(self._counts)
        from_above = np.cumsum(self._counts[::-1])
        high_bin = self._first + int(np.searchsorted(from_below, needed))
        low_bin = self._first + self._counts.size - 1 - int(np.searchsorted(from_above, needed))
        low = max(self._low, math.ldexp(low_bin, self._exponent))
        high = min(self._high, math.ldexp(high_bin + 1, self._exponent))
        return low, high

    def _exponent_for(self, low: float, high: float) -> int:
        """Return the exponent of the widest bins that are narrow enough for a range."""
        if high > low:
            return math.frexp((high - low) / BINS)[1] - 1
        # One value only: bins so narrow that whatever range comes later can merge them.
        return math.frexp(low)[1] - 53 if low else LEAST_EXPONENT

    def _merge_bins(self, doublings: int) -> None:
        """Make the bins wider by a power of two."""
        if doublings == 0 or self._counts.size == 0:
            return
        places = (self._first + np.arange(self._counts.size)) >> min(doublings, 63)
        self._first = int(places[0])
        self._counts = np.bincount(places - self._first, weights=self._counts).astype(np.int64)

    def _bin_of(self, value: float) -> int:
        """Return the number of the bin that holds a value."""
        return math.floor(math.ldexp(value, -self._exponent))

    def _count(self, values: npt.NDArray[Any], last: int) -> None:
        """Count values into the bins up to `last`, in pieces that stay in the processor's cache."""
        first = self._first
        exact_in_float32 = abs(self._exponent) < 120 and max(abs(first), abs(last)) < 2**23
        compute: Any = np.float32 if exact_in_float32 else np.float64
        bins_per_unit = compute(2.0**-self._exponent)
        for start in range(0, values.size, PIECE):
            piece = values[start : start + PIECE].astype(compute, copy=False)
            places = np.floor(piece * bins_per_unit) - compute(first)
            self._counts += np.bincount(places.astype(np.intp), minlength=self._counts.size)
