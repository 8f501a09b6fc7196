"""The range with the least squared error of the quantized values."""

from __future__ import annotations

from qdq_workbench.calibration.observers.error_observer import ErrorObserver
from qdq_workbench.calibration.observers.observer import register_observer
from qdq_workbench.calibration.observers.range_search import power_error


@register_observer("mse")
class MSEObserver(ErrorObserver):
    """Range with the least mean squared error on the tensor's grid; see `range_search`.

    Args:
        tensor: Name of the tensor, for error messages.
        candidates: The number of fractions of the range to try.

    Raises:
        DataError: If `candidates` is not an integer from 2 on.

    Example:
        >>> import numpy as np
        >>> observer = MSEObserver("relu1")
        >>> observer.update(np.append(np.linspace(0.0, 1.0, 1_000_000), 2.0))
        >>> low, high = observer.range()
        >>> low, 1.0 <= high < 1.5
        (0.0, True)
    """

    def __init__(self, tensor: str, candidates: int = 100) -> None:
        super().__init__(tensor, power_error(2), candidates)
