"""What the methods have in common that look at a histogram of all values."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from qdq_workbench.calibration.observers.histogram import BINS, Histogram
from qdq_workbench.calibration.observers.observer import Observer
from qdq_workbench.errors import DataError


class HistogramObserver(Observer):
    """Base class of the observers that keep a histogram; subclasses say in `result` what range follows from it.

    Args:
        tensor: Name of the tensor, for error messages.
        bins: Least number of bins over the range seen.
    """

    def __init__(self, tensor: str, bins: int = BINS) -> None:
        super().__init__(tensor)
        self.histogram = Histogram(bins)

    def observe(self, values: npt.NDArray[Any], low: float, high: float) -> None:  # noqa: ARG002 (the interface)
        """Add a batch to the histogram.

        Args:
            values: The batch.
            low: Not used.
            high: Not used.
        """
        self.histogram.add(values)

    def update_counts(self, low: float, high: float, first: int, counts: npt.NDArray[Any]) -> None:
        """Read one batch that was counted elsewhere; see `Histogram.add_counts`.

        Args:
            low: Lowest value of the batch.
            high: Highest value of the batch.
            first: The bin that `counts` begins with.
            counts: Counts per bin.

        Raises:
            DataError: If an end is NaN or infinite; the observer stays as it was.
        """
        self.check(low, high)
        self.histogram.add_counts(low, high, first, counts)
        self.batches += 1

    def state(self) -> dict[str, Any]:
        """Return the histogram and the number of batches, JSON-compatible."""
        return {"batches": self.batches, "histogram": self.histogram.state()}

    def absorb(self, state: dict[str, Any]) -> None:
        """Add what another observer of this method has seen.

        Args:
            state: What its `state` returned.
        """
        self.histogram.merge(Histogram.from_state(state["histogram"]))
        self.batches += int(state["batches"])


def checked_count(name: str, value: Any, least: int) -> int:
    """Return a setting that counts something.

    Args:
        name: Name of the setting.
        value: What the user passed.
        least: The lowest value that makes sense.

    Raises:
        DataError: If it is not an integer, or too low.
    """
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < least:
        raise DataError(f"{name} must be an integer from {least} on. Received: {name}={value!r}")
    return int(value)
