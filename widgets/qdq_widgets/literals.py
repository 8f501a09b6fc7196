"""Values as Python source, for generated code."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np


def literal(value: Any) -> str:
    """Return the Python source of a value; other objects than numbers, texts and collections by their `repr`.

    Example:
        >>> literal({"rate": np.float64(0.25), "limits": (0, float("inf"))})
        "{'rate': 0.25, 'limits': (0, float('inf'))}"
    """
    # NumPy's numbers and infinity have a `repr` of names that generated code does not know.
    if isinstance(value, np.generic):
        # `item` of a `longdouble` is a `longdouble`.
        return literal(float(value) if isinstance(value, np.floating) else value.item())
    if isinstance(value, float) and not math.isfinite(value):
        return f"float({str(value)!r})"
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{literal(key)}: {literal(item)}' for key, item in value.items())}}}"
    if type(value) is list:
        return f"[{', '.join(map(literal, value))}]"
    if type(value) is tuple:
        return f"({', '.join(map(literal, value))}{',' * (len(value) == 1)})"
    return repr(value)


def keywords(values: Mapping[str, Any]) -> list[str]:
    """Return the Python source of keyword arguments.

    Example:
        >>> keywords({"steps": 4, "method": "mse"})
        ['steps=4', "method='mse'"]
    """
    return [f"{name}={literal(value)}" for name, value in values.items()]
