"""The range with the least absolute error of the quantized values."""

from __future__ import annotations

from qdq_workbench.calibration.observers.error_observer import ErrorObserver
from qdq_workbench.calibration.observers.observer import register_observer
from qdq_workbench.calibration.observers.range_search import power_error


@register_observer("mae")
class MAEObserver(ErrorObserver):
    """Range with the least mean absolute error on the tensor's grid: outliers count less than under `mse`.

    Args:
        tensor: Name of the tensor, for error messages.
        candidates: The number of fractions of the range to try.

    Raises:
        DataError: If `candidates` is not an integer from 2 on.

    Example:
        >>> import numpy as np
        >>> observer = MAEObserver("relu1")
        >>> observer.update(np.append(np.linspace(0.0, 1.0, 100_000), 2.0))
        >>> observer.range()[1] < 1.5
        True
    """

    def __init__(self, tensor: str, candidates: int = 100) -> None:
        super().__init__(tensor, power_error(1), candidates)
