"""Numbers of NumPy as numbers of Python, which JSON and a saved bench can hold."""

from __future__ import annotations

import numbers
import operator
from typing import Any


def whole(value: Any) -> Any:
    """Return a whole number of any type as an int; other values unchanged, among them truth values.

    Example:
        >>> whole(4), whole(True), whole(4.5)
        (4, True, 4.5)
    """
    if isinstance(value, int) or not isinstance(value, numbers.Integral):
        return value
    return operator.index(value)


def real(value: Any) -> Any:
    """Return a real number of any type as an int or a float; other values unchanged, among them truth values.

    Example:
        >>> real(0.5), real(3), real(True)
        (0.5, 3, True)
    """
    if isinstance(value, numbers.Real) and not isinstance(value, numbers.Integral):
        return float(value)
    return whole(value)
