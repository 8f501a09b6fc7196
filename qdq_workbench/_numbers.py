"""Numbers of other libraries, such as those of NumPy, as numbers of Python, which JSON and configurations can hold."""

from __future__ import annotations

import numbers
import operator
from typing import Any


def whole(value: Any) -> Any:
    """Return a whole number of any type as an int; other values unchanged, among them truth values.

    Example:
        >>> whole(4), whole(True), whole(4.0), whole(None)
        (4, True, 4.0, None)
    """
    # A bool can be an index for Python; it stays one, to be refused.
    if isinstance(value, (int, str)) or not hasattr(value, "__index__"):
        return value
    try:
        return operator.index(value)
    except TypeError:  # an array of several numbers, or a truth value of NumPy
        return value


def real(value: Any) -> Any:
    """Return a real number of any type as an int or a float; other values unchanged, among them truth values.

    Example:
        >>> real(0.5), real(3), real(True), real("0.5")
        (0.5, 3, True, '0.5')
    """
    if isinstance(value, numbers.Real) and not isinstance(value, numbers.Integral):
        return float(value)
    return whole(value)
