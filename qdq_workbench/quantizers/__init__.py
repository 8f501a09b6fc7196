"""Quantizers: the arithmetic of the grids, and the ranges that are learned or fixed.

Importing this package does not import TensorFlow; asking it for a quantizer class does.
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

__all__ = [
    "AllValuesQuantizer",
    "FixedQuantizer",
    "LSQQuantizer",
    "LastValueQuantizer",
    "MovingAverageQuantizer",
    "QParams",
    "Quantizer",
    "fake_quantize_tensor",
    "fake_quantize_weight",
    "make_quantizer",
]


def __getattr__(name: str) -> Any:
    """Import the module that holds `name` when it is first asked for."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    """List the lazy names beside the loaded ones."""
    return sorted({*globals(), *_HOMES})
