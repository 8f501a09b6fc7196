"""The range of all values."""

from __future__ import annotations

from typing import Any

import numpy.typing as npt

from qdq_workbench.calibration.observers.observer import Observer, register_observer


@register_observer("minmax")
class MinMaxObserver(Observer):
    """Range of all values: nothing saturates, but a single outlier makes the grid coarser for all values.

    Takes the argument of `Observer`.

    Example:
        >>> observer = MinMaxObserver("relu1")
        >>> observer.update([[0.5, 3.0]])
        >>> observer.range()
        (0.5, 3.0)
    """

    def __init__(self, tensor: str) -> None:
        super().__init__(tensor)
        self._low, self._high = float("inf"), float("-inf")

    def observe(self, values: npt.NDArray[Any], low: float, high: float) -> None:  # noqa: ARG002 (the interface)
        """Widen the range to contain the batch."""
        self._low, self._high = min(self._low, low), max(self._high, high)

    def result(self) -> tuple[float, float]:
        """Return the lowest and highest value of all batches."""
        return self._low, self._high

    def state(self) -> dict[str, Any]:
        """Return the range of all values, JSON-compatible."""
        return {"batches": self.batches, "low": self._low, "high": self._high}

    def absorb(self, state: dict[str, Any]) -> None:
        """Widen the range to contain that of another observer, given its `state`."""
        self._low, self._high = min(self._low, float(state["low"])), max(self._high, float(state["high"]))
        self.batches += int(state["batches"])
