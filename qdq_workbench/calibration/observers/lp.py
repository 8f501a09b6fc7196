"""The range with the least error of the quantized values in an L_p norm."""

from __future__ import annotations

import numpy as np

from qdq_workbench.calibration.observers.error_observer import ErrorObserver
from qdq_workbench.calibration.observers.observer import register_observer
from qdq_workbench.calibration.observers.range_search import power_error
from qdq_workbench.errors import DataError


@register_observer("lp")
class LpObserver(ErrorObserver):
    """Range with the least sum of |x - Q(x)|^p on the tensor's grid; a high p avoids clipping.

    Args:
        tensor: Name of the tensor, for error messages.
        p: The power, above 0.
        candidates: The number of fractions of the range to try.

    Raises:
        DataError: If `p` is not a number above 0, or `candidates` is not an integer from 2 on.

    Example:
        >>> observer = LpObserver("relu1", p=3)
        >>> observer.update([0.0, 1.0, 2.0])
        >>> observer.range()
        (0.0, 2.0)
    """

    def __init__(self, tensor: str, p: float = 2.0, candidates: int = 100) -> None:
        number = isinstance(p, (int, float, np.number)) and not isinstance(p, bool)
        if not number or not 0 < p < np.inf:
            raise DataError(f"p must be a number above 0. Received: p={p!r}")
        super().__init__(tensor, power_error(float(p)), candidates)
        self.p = float(p)
