"""Base class of the methods that minimize an error of the quantized values."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from qdq_workbench.calibration.observers.histogram_observer import HistogramObserver, checked_count
from qdq_workbench.calibration.observers.range_search import ErrorFunction, RangeSearch


class ErrorObserver(HistogramObserver):
    """Base class of the observers that choose the range with the least error on the tensor's own grid.

    Args:
        tensor: Name of the tensor, for error messages.
        error: The error function; see `RangeSearch`.
        candidates: The number of fractions of the range to try.

    Raises:
        DataError: If `candidates` is not an integer from 2 on.
    """

    def __init__(self, tensor: str, error: ErrorFunction, candidates: int) -> None:
        super().__init__(tensor)
        self.candidates = checked_count("candidates", candidates, 2)
        self._error = error

    def counts(self) -> npt.NDArray[np.int64]:
        """Return the counts that the error is computed from."""
        return self.histogram.counts

    def result(self) -> tuple[float, float]:
        """Return the range with the least error."""
        seen = self.histogram
        search = RangeSearch(seen.centers, self.counts(), self.spec, self._error, self.candidates)
        return search.best(seen.low, seen.high)
