"""A moving average of the ranges of the batches."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from qdq_workbench.calibration.observers.observer import Observer, register_observer
from qdq_workbench.errors import DataError


@register_observer("moving_average")
class MovingAverageObserver(Observer):
    """Moving average of the ranges of the batches: an outlier in one batch has little weight.

        range <- batch range                                        first batch
        range <- momentum * range + (1 - momentum) * batch range    later batches

    To merge a later part of the data that was averaged separately, over n batches with f the range of its first batch,

        range <- momentum^n * range + (range of that part) - momentum^n * f

    Args:
        tensor: Name of the tensor, for error messages.
        momentum: Weight of the current range, at least 0 and below 1.

    Raises:
        DataError: If `momentum` is outside [0, 1).

    Example:
        >>> observer = MovingAverageObserver("relu1", momentum=0.5)
        >>> observer.update([0.0, 2.0])
        >>> observer.update([0.0, 4.0])
        >>> observer.range()
        (0.0, 3.0)
    """

    def __init__(self, tensor: str, momentum: float = 0.9) -> None:
        super().__init__(tensor)
        if not isinstance(momentum, (int, float, np.floating)) or not 0.0 <= momentum < 1.0:
            raise DataError(f"momentum must be at least 0 and below 1. Received: momentum={momentum!r}")
        self.momentum = float(momentum)
        self._low, self._high = 0.0, 0.0
        self._first = (0.0, 0.0)

    def observe(self, values: npt.NDArray[Any], low: float, high: float) -> None:  # noqa: ARG002 (the interface)
        """Move the range towards that of the batch."""
        if not self.batches:
            self._first = (low, high)
        keep = self.momentum if self.batches else 0.0
        self._low = keep * self._low + (1.0 - keep) * low
        self._high = keep * self._high + (1.0 - keep) * high

    def result(self) -> tuple[float, float]:
        """Return the moving average."""
        return self._low, self._high

    def state(self) -> dict[str, Any]:
        """Return the average and the range of the first batch, JSON-compatible."""
        return {"batches": self.batches, "low": self._low, "high": self._high, "first": list(self._first)}

    def absorb(self, state: dict[str, Any]) -> None:
        """Continue the average with the batches of another observer, given its `state`, as if they came next."""
        low, high, batches = float(state["low"]), float(state["high"]), int(state["batches"])
        first = (float(state["first"][0]), float(state["first"][1]))
        if self.batches:
            keep = self.momentum**batches
            self._low = keep * (self._low - first[0]) + low
            self._high = keep * (self._high - first[1]) + high
        else:
            self._low, self._high, self._first = low, high, first
        self.batches += batches
