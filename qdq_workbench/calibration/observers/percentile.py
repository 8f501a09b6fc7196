"""A range that excludes the extreme values at both ends, from a histogram computed in one pass.

With p percent to keep, (100 - p) / 2 percent are excluded at either end, as in ONNX Runtime's percentile calibration
of asymmetric ranges:

    high    start of the bin of the smallest value v such that at least 50 + p/2 percent of all values are <= v
    low     start of the bin of the smallest value v such that at least 50 - p/2 percent of all values are <= v

An end in the outermost bin becomes the outermost value itself. So each end is within one bin, at most 1/4096 of the
range seen, of the percentile. The shares are summed in floating point, as in ONNX Runtime; if a percentile falls
exactly between two values, rounding errors decide.

Source: `HistogramCollector.compute_percentile` in onnxruntime/python/tools/quantization/calibrate.py.
"""

from __future__ import annotations

import numpy as np

from qdq_workbench.calibration.observers.histogram_observer import HistogramObserver
from qdq_workbench.calibration.observers.observer import register_observer
from qdq_workbench.errors import DataError


@register_observer("percentile")
class PercentileObserver(HistogramObserver):
    """Range that contains a given percentage of the values; see the top of the file.

    Args:
        tensor: Name of the tensor, for error messages.
        percentile: Percentage of the values inside the range, above 0 and at most 100.

    Raises:
        DataError: If `percentile` is out of bounds.

    Example:
        >>> observer = PercentileObserver("relu1", percentile=80.0)
        >>> observer.update(np.arange(100.0))
        >>> low, high = observer.range()
        >>> 9 <= low <= 10, 89 <= high <= 90
        (True, True)
    """

    def __init__(self, tensor: str, percentile: float = 99.99) -> None:
        super().__init__(tensor)
        number = isinstance(percentile, (int, float, np.floating)) and not isinstance(percentile, bool)
        if not number or not 0.0 < percentile <= 100.0:
            raise DataError(f"percentile must be above 0 and at most 100. Received: percentile={percentile!r}")
        self.percentile = float(percentile)

    def result(self) -> tuple[float, float]:
        """Return the two percentiles."""
        counts = self.histogram.counts
        shares = np.cumsum(counts / counts.sum())
        left_out = (100.0 - self.percentile) / 200.0
        first = int(np.searchsorted(shares, left_out))
        last = int(np.searchsorted(shares, 1.0 - left_out))
        high = self.histogram.high if last >= counts.size - 1 else self.histogram.bin_start(last)
        return self.histogram.bin_start(first), high
