"""Quantizers: the arithmetic of the grids, and the methods that determine the ranges.

Importing this package does not import TensorFlow; accessing a quantizer class does.
"""

from __future__ import annotations

import importlib
from typing import Any

_HOMES = {
    "AllValuesQuantizer": "all_values",
    "FixedQuantizer": "fixed",
    "LSQQuantizer": "lsq",
    "LastValueQuantizer": "last_value",
    "MovingAverageQuantizer": "moving_average",
    "QParams": "numerics",
    "Quantizer": "quantizer",
    "fake_quantize_tensor": "fake_quantize",
    "fake_quantize_weight": "fake_quantize",
    "make_quantizer": "make",
}

__all__ = [*_HOMES]  # noqa: PLE0604 - all are strings


def __getattr__(name: str) -> Any:
    """Import the module of `name` on first access."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    """List the lazy and the loaded names."""
    return sorted({*globals(), *_HOMES})
