"""Checks of the settings that `learn_rounding` and `gptq_weights` share."""

from __future__ import annotations

from typing import Any

import numpy as np

from qdq_workbench.errors import DataError


def check_integer(name: str, value: Any, least: int) -> None:
    """Raise an error if a setting is no integer from `least` on that 32 bits hold."""
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or not least <= value < 2**31:
        raise DataError(f"{name} must be an integer from {least} on. Received: {name}={value!r}")


def is_number(value: Any) -> bool:
    """Return whether a setting is a number, also one of NumPy; a truth value is none."""
    return not isinstance(value, bool) and isinstance(value, (int, float, np.number))
