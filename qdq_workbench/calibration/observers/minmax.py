"""The range of all values."""

from __future__ import annotations

from typing import Any

import numpy.typing as npt

from qdq_workbench.calibration.observers.observer import Observer, register_observer


@register_observer("minmax")
class MinMaxObserver(Observer):
    """Range of all values: nothing saturates, and one outlier widens the steps for all.

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
        """Widen the range to contain the batch.

        Args:
            values: Not used.
            low: Lowest value of the batch.
            high: Highest value of the batch.
        """
        self._low, self._high = min(self._low, low), max(self._high, high)

    def result(self) -> tuple[float, float]:
        """Return the lowest and highest value of all batches."""
        return self._low, self._high

    def state(self) -> dict[str, Any]:
        """Return the range of all values, JSON-compatible."""
        return {"batches": self.batches, "low": self._low, "high": self._high}

    def absorb(self, state: dict[str, Any]) -> None:
        """Widen the range to what another observer has seen.

        Args:
            state: What its `state` returned.
        """
        self._low, self._high = min(self._low, float(state["low"])), max(self._high, float(state["high"]))
        self.batches += int(state["batches"])
