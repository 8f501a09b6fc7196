"""The grids that a runtime's integer kernels do not take, and the settings that do away with them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from qdq_workbench.placement.placement import Placement

_BITS = 8


def why_grid(
    placements: Iterable[Placement], runtime: str, *, without_zero_points: bool
) -> tuple[str, tuple[str, ...]]:
    """Return a reason and a remedy if integer kernels do not take the grid of a tensor; else ("", ()).

    With `without_zero_points` all zero points must be 0, so that integers must be signed and symmetric.
    """
    for placement in placements:
        grid = placement.quantizer
        wanted: dict[str, Any] = {"num_bits": _BITS} if grid.num_bits > _BITS else {}
        if without_zero_points:
            wanted.update({name: True for name in ("signed", "symmetric") if not getattr(grid, name)})
        if wanted:
            zero_point = "" if grid.signed and grid.symmetric else " with a zero point"
            takes = "signed 8-bit integers without one" if without_zero_points else "8 bits"
            settings = ", ".join(f'"{name}": {value}' for name, value in wanted.items())
            reason = f"{placement.tensor!r} is {grid.label}{zero_point}; {runtime} takes {takes}"
            return reason, (f"set {{{settings}}} in its quantizer settings",)
    return "", ()
