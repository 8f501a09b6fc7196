"""Base class of the methods that use a histogram of all values."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from qdq_workbench.calibration.observers.histogram import BINS, Histogram
from qdq_workbench.calibration.observers.observer import Observer
from qdq_workbench.errors import DataError


class HistogramObserver(Observer):
    """Base class of the observers that keep a histogram; subclasses compute the range from it in `result`.

    Args:
        tensor: Name of the tensor, for error messages.
        bins: Minimum number of bins over the range seen.
    """

    def __init__(self, tensor: str, bins: int = BINS) -> None:
        super().__init__(tensor)
        self.histogram = Histogram(bins)

    def observe(self, values: npt.NDArray[Any], low: float, high: float) -> None:  # noqa: ARG002 (the interface)
        """Add a batch to the histogram."""
        self.histogram.add(values)

    def update_counts(self, low: float, high: float, first: int, counts: npt.NDArray[Any]) -> None:
        """Read one batch that was counted elsewhere; arguments as for `Histogram.add_counts`.

        Raises:
            DataError: If `low` or `high` is NaN or infinite; the observer does not change.
        """
        self.check(low, high)
        self.histogram.add_counts(low, high, first, counts)
        self.batches += 1

    def state(self) -> dict[str, Any]:
        """Return the histogram and the number of batches, JSON-compatible."""
        return {"batches": self.batches, "histogram": self.histogram.state()}

    def absorb(self, state: dict[str, Any]) -> None:
        """Add the histogram of another observer of this method, given its `state`."""
        self.histogram.merge(Histogram.from_state(state["histogram"]))
        self.batches += int(state["batches"])


def checked_count(name: str, value: Any, least: int) -> int:
    """Return a setting as an int; raise DataError unless it is an integer of at least `least`."""
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < least:
        raise DataError(f"{name} must be an integer from {least} on. Received: {name}={value!r}")
    return int(value)
