"""The colours that the graph gives to figures: cividis, from dark blue to yellow (Nunez, Anderton and Renslow 2018)."""

from __future__ import annotations

import math
from collections.abc import Sequence

# The same as SCALE in widgets/src/colors.ts.
COLORS = ("#00224e", "#123570", "#3b496c", "#575d6d", "#707173", "#8a8678", "#a59c74", "#c3b369", "#e1cc55")
_RGB = [tuple(int(text[at : at + 2], 16) for at in (1, 3, 5)) for text in COLORS]


def scale_colors(values: Sequence[float], *, is_log: bool = False) -> list[str]:
    """Return the colour of every value, as `#rrggbb`, on a scale from the lowest to the highest of them.

    `is_log` asks for a logarithmic scale, and is ignored unless all values are above 0.

    Example:
        >>> scale_colors([0.0, 1.0])
        ['#00224e', '#e1cc55']
    """
    if not values:
        return []
    low, high = min(values), max(values)
    return [_mixed(_place(value, low, high, is_log=is_log and low > 0)) for value in values]


def _place(value: float, low: float, high: float, *, is_log: bool) -> float:
    if high <= low:
        return 0.5
    return math.log(value / low) / math.log(high / low) if is_log else (value - low) / (high - low)


def _mixed(place: float) -> str:
    at = place * (len(_RGB) - 1)
    start = min(int(at), len(_RGB) - 2)
    parts = (a + (b - a) * (at - start) for a, b in zip(_RGB[start], _RGB[start + 1], strict=True))
    # Halves go up as in `Math.round` of colors.ts; Python's `round` takes them to the even number.
    return "#" + "".join(f"{math.floor(part + 0.5):02x}" for part in parts)
