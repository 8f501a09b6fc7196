"""A histogram computed in one pass over data of unknown range.

The bins are [k * w, (k + 1) * w) with w a power of two, so a wider range only merges neighbouring bins, and the counts
do not depend on the order of the batches. For B requested bins,

    (highest - lowest) / (2 * B) < w <= (highest - lowest) / B

so there are B to 2 * B + 1 bins over the range seen, and the histograms of two parts of the data add up to exactly the
histogram of all data.
"""

from __future__ import annotations

import base64
import math
import zlib
from typing import Any

import numpy as np
import numpy.typing as npt

from qdq_workbench.errors import DataError

BINS = 4096
PIECE = 1 << 16
LEAST_EXPONENT = -202  # 53 bits below float32's smallest number


class Histogram:
    """Counts of values in bins whose width is a power of two; see the top of the file.

    Args:
        bins: Minimum number of bins over the range seen.

    Example:
        >>> histogram = Histogram(bins=4)
        >>> histogram.add(np.array([0.0, 1.0, 7.5], np.float32))
        >>> histogram.counts.tolist(), histogram.edges[:3].tolist()
        ([1, 1, 0, 0, 0, 0, 0, 1], [0.0, 1.0, 2.0])
    """

    def __init__(self, bins: int = BINS) -> None:
        self.bins = bins
        self.low, self.high = math.inf, -math.inf
        self.counts: npt.NDArray[np.int64] = np.zeros(0, np.int64)
        self._exponent = LEAST_EXPONENT  # the width of a bin is 2 ** _exponent
        self._first = 0  # the first bin is [_first * width, (_first + 1) * width)

    @property
    def width(self) -> float:
        """The width of a bin."""
        return math.ldexp(1.0, self._exponent)

    @property
    def edges(self) -> npt.NDArray[np.float64]:
        """The edges of the bins, one more than there are bins."""
        places = self._first + np.arange(self.counts.size + 1)
        return np.asarray(np.ldexp(places.astype(np.float64), self._exponent))

    @property
    def centers(self) -> npt.NDArray[np.float64]:
        """The middle of every bin, clipped to the range of the values seen."""
        edges = self.edges
        return np.asarray(np.clip((edges[:-1] + edges[1:]) / 2, self.low, self.high))

    def add(self, values: npt.NDArray[Any]) -> None:
        """Count at least one finite float32 value, after widening the bins to cover them."""
        self._cover(float(values.min()), float(values.max()))
        self._count(values.reshape(-1))

    def add_counts(self, low: float, high: float, first: int, counts: npt.NDArray[Any]) -> None:
        """Add a batch counted elsewhere (see `reader`), in the bins of a histogram of this batch alone.

        `counts` begins with the bin of number `first`; surplus bins at its end are zero.
        """
        batch = Histogram(self.bins)
        batch._cover(low, high)
        if low == high:
            batch.counts[0] = counts.sum()
        else:
            # The reader counts values that underflow as 0, so its first bin may be one after the lowest value's.
            start = max(first - batch._first, 0)
            batch.counts[start:] = counts[: batch.counts.size - start]
        self.merge(batch)

    def merge(self, other: Histogram) -> None:
        """Add the counts of another histogram; raise DataError if its `bins` differs."""
        if other.bins != self.bins:
            raise DataError(
                "Two histograms can be added when they were made with the same number of bins. "
                f"Received: bins={self.bins} and bins={other.bins}"
            )
        if not other.counts.size:
            return
        self._cover(other.low, other.high)
        doublings = min(self._exponent - other._exponent, 63)  # NumPy cannot shift int64 any further
        start = (other._first >> doublings) - self._first
        if doublings:
            places = (other._first + np.arange(other.counts.size)) >> doublings
            # Weighted counts are summed in float64: exact up to 2^53.
            merged = np.bincount(places - places[0], weights=other.counts).astype(np.int64)
        else:
            merged = other.counts
        self.counts[start : start + merged.size] += merged

    def state(self) -> dict[str, Any]:
        """Return the histogram as a JSON-compatible dictionary; the counts are compressed."""
        packed = zlib.compress(self.counts.astype("<i8").tobytes(), level=6)
        return {
            "bins": self.bins,
            "low": self.low,
            "high": self.high,
            "exponent": self._exponent,
            "first": self._first,
            "counts": base64.b64encode(packed).decode("ascii"),
        }

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> Histogram:
        """Rebuild a histogram from the dictionary of `state`."""
        histogram = cls(state["bins"])
        histogram.low, histogram.high = float(state["low"]), float(state["high"])
        histogram._exponent, histogram._first = int(state["exponent"]), int(state["first"])
        packed = zlib.decompress(base64.b64decode(state["counts"]))
        histogram.counts = np.frombuffer(packed, "<i8").astype(np.int64)
        return histogram

    def rebinned(self, edges: npt.NDArray[np.float64]) -> npt.NDArray[np.int64]:
        """Return the counts in other bins, whose increasing edges cover the range seen.

        The count of a bin that an edge divides is split in proportion.
        """
        cumulative = np.concatenate([[0], np.cumsum(self.counts)])
        below = np.rint(np.interp(edges, self.edges, cumulative))
        # The outermost bins may reach beyond the new edges, but their values do not.
        below[0], below[-1] = 0, cumulative[-1]
        return np.asarray(np.diff(below).astype(np.int64))

    def bin_start(self, index: int) -> float:
        """Return the lower edge of the bin `index`, at least the lowest value seen."""
        return max(self.low, math.ldexp(self._first + index, self._exponent))

    def _cover(self, low: float, high: float) -> None:
        """Widen the bins and add new ones, to cover the range seen and [low, high]."""
        self.low, self.high = min(self.low, low), max(self.high, high)
        # Never narrower than before: counts can be merged, but not divided again.
        exponent = max(self._exponent, self._exponent_for(self.low, self.high))
        self._merge_bins(exponent - self._exponent)
        self._exponent = exponent
        first, last = self._bin_of(self.low), self._bin_of(self.high)
        counts = np.zeros(last - first + 1, np.int64)
        start = self._first - first
        counts[start : start + self.counts.size] = self.counts
        self._first, self.counts = first, counts

    def _exponent_for(self, low: float, high: float) -> int:
        """Return the exponent of the widest bins that are narrow enough for a range."""
        if high > low:
            return math.frexp((high - low) / self.bins)[1] - 1
        # For a single value the bins are so narrow that any later range can merge them.
        return math.frexp(low)[1] - 53 if low else LEAST_EXPONENT

    def _merge_bins(self, doublings: int) -> None:
        """Merge each 2 ** doublings neighbouring bins into one."""
        if doublings == 0 or self.counts.size == 0:
            return
        places = (self._first + np.arange(self.counts.size)) >> min(doublings, 63)
        self._first = int(places[0])
        self.counts = np.bincount(places - self._first, weights=self.counts).astype(np.int64)

    def _bin_of(self, value: float) -> int:
        """Return the number of the bin that holds a value."""
        return math.floor(math.ldexp(value, -self._exponent))

    def _count(self, values: npt.NDArray[Any]) -> None:
        """Count values into the bins, in pieces that stay in the processor's cache."""
        first, last = self._first, self._first + self.counts.size - 1
        # Multiplying by a power of two is exact, and so are bin numbers below 2^23. float32 halves the memory traffic.
        exact_in_float32 = abs(self._exponent) < 120 and max(abs(first), abs(last)) < 2**23
        compute: Any = np.float32 if exact_in_float32 else np.float64
        bins_per_unit = compute(2.0**-self._exponent)
        for start in range(0, values.size, PIECE):
            piece = values[start : start + PIECE].astype(compute, copy=False)
            places = np.floor(piece * bins_per_unit) - compute(first)
            self.counts += np.bincount(places.astype(np.intp), minlength=self.counts.size)
