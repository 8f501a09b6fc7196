"""The threshold with the least relative entropy, by ONNX Runtime's rules.

The values are counted in N bins of equal width over [-T, T], T the largest magnitude. For every half width i of a
window around zero, from Nq/2 bins to all of them,

    P    the window's counts, with all counts outside added to its first and last bin
    Q    the window's counts merged into Nq equal groups (the remainder joins the last group), each group's count
         divided evenly among its occupied bins, rounded down

both smoothed: empty bins are raised to 1e-4, and the sum of these is subtracted evenly from the other bins. The window
with the least KL(P || Q), clipped to the lowest and highest value seen, is the range. N and Nq are `num_bins` and
`num_quantized_bins`; ONNX Runtime's own defaults, 128 and 128, allow a single window and hence the range of all
values.

Sources: `HistogramCollector.get_entropy_threshold` in onnxruntime/python/tools/quantization/calibrate.py; Migacz,
"8-bit inference with TensorRT", GTC 2017.
"""

from __future__ import annotations

import numpy as np

from qdq_workbench.calibration.observers.entropy_windows import best_window
from qdq_workbench.calibration.observers.histogram_observer import HistogramObserver, checked_count
from qdq_workbench.calibration.observers.observer import register_observer
from qdq_workbench.errors import DataError

# The bins over [-T, T] are known only after the last batch. Values are counted in bins this many times finer, whose
# counts are then moved into those bins.
_FINE_PER_BIN = 16


@register_observer("entropy")
class EntropyObserver(HistogramObserver):
    """Range of the threshold with the least relative entropy; see the top of the file.

    The window is symmetric around zero and does not depend on the tensor's grid; after a ReLU the range starts at 0.

    Args:
        tensor: Name of the tensor, for error messages.
        num_bins: Bins over [-T, T], an even number.
        num_quantized_bins: Groups that a window is merged into, at most `num_bins`.

    Raises:
        DataError: If a setting is out of bounds.

    Example:
        >>> observer = EntropyObserver("relu1")
        >>> observer.update(np.append(np.random.default_rng(0).normal(size=100_000), 40.0))
        >>> observer.range()[1] < 10
        True
    """

    def __init__(self, tensor: str, num_bins: int = 2048, num_quantized_bins: int = 128) -> None:
        self.num_bins = checked_count("num_bins", num_bins, 2)
        self.num_quantized_bins = checked_count("num_quantized_bins", num_quantized_bins, 2)
        if self.num_bins % 2 or self.num_quantized_bins > self.num_bins:
            raise DataError(
                "num_bins must be even, and num_quantized_bins at most as large. "
                f"Received: num_bins={num_bins!r}, num_quantized_bins={num_quantized_bins!r}"
            )
        super().__init__(tensor, bins=self.num_bins * _FINE_PER_BIN)

    def result(self) -> tuple[float, float]:
        """Return the range of the best window."""
        seen = self.histogram
        largest = max(abs(seen.low), abs(seen.high))
        if largest == 0.0:
            return 0.0, 0.0
        edges = np.linspace(-largest, largest, self.num_bins + 1)
        low, high = best_window(seen.rebinned(edges), edges, self.num_quantized_bins)
        return max(low, seen.low), min(high, seen.high)
