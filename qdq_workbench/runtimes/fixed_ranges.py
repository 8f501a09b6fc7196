"""Fixed ranges, the only ones whose zero point a plan determines."""

from __future__ import annotations

import math

from qdq_workbench.spec.quantizer_method import QuantizerMethod
from qdq_workbench.spec.quantizer_spec import QuantizerSpec


def fixed_ends(method: QuantizerMethod | None) -> tuple[float, float] | None:
    """Return the ends of a fixed range, which contains 0; None for a range that is observed."""
    if method is None or method.name != "fixed":
        return None
    settings = method.arguments
    return min(settings["init_min"], 0.0), max(settings["init_max"], 0.0)


def steps_below_zero(grid: QuantizerSpec, ends: tuple[float, float]) -> int:
    """Return the zero point of an asymmetric grid minus its lowest integer, as `quantizers.numerics` has it."""
    scale = (ends[1] - ends[0]) / (grid.qmax - grid.qmin)
    return 0 if scale == 0.0 else math.floor(0.5 - ends[0] / scale)
