"""A moving average of the ranges of the batches."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from qdq_workbench.calibration.observers.observer import Observer, register_observer
from qdq_workbench.errors import DataError


@register_observer("moving_average")
class MovingAverageObserver(Observer):
    """Moving average of the batches' ranges: an outlier in one batch counts for little.

        range <- batch range                                        first batch
        range <- momentum * range + (1 - momentum) * batch range    from then on

    Args:
        tensor: Name of the tensor, for error messages.
        momentum: Weight of the present range, at least 0 and below 1.

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
        self.momentum = momentum
        self._low, self._high = 0.0, 0.0

    def observe(self, values: npt.NDArray[Any], low: float, high: float) -> None:  # noqa: ARG002 (the interface)
        """Move the range towards that of the batch.

        Args:
            values: Not used.
            low: Lowest value of the batch.
            high: Highest value of the batch.
        """
        keep = self.momentum if self.batches else 0.0
        self._low = keep * self._low + (1.0 - keep) * low
        self._high = keep * self._high + (1.0 - keep) * high

    def result(self) -> tuple[float, float]:
        """Return the moving average."""
        return self._low, self._high
