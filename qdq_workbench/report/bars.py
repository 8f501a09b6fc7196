"""Horizontal bar charts with a transparent background, for light and dark pages."""

from __future__ import annotations

from typing import Any

BAR, SECOND, NEUTRAL = "#0072B2", "#E69F00", "#7A7A7A"
_PER_BAR = 22  # pixels


def plain(name: str) -> str:
    """Return a name with `<` escaped, because plotly renders some HTML in axis and hover texts."""
    return name.replace("<", "&lt;")


def arrange_bars(figure: Any, title: str, count: int) -> None:
    """Set axes, background and height of a plotly figure of `count` horizontal bars, the first one on top."""
    grid = {"gridcolor": "rgba(128,128,128,0.25)", "zeroline": False, "linecolor": NEUTRAL}
    figure.update_layout(
        xaxis={"title": {"text": plain(title)}, **grid},
        # One category per layer, even if names look like numbers.
        # Reversed, because plotly puts the first category at the bottom.
        yaxis={"autorange": "reversed", "type": "category", "automargin": True},
        paper_bgcolor="rgba(0,0,0,0)",
        plot_bgcolor="rgba(0,0,0,0)",
        font={"color": NEUTRAL, "family": "system-ui, sans-serif"},
        margin={"l": 20, "r": 20, "t": 30, "b": 50},
        height=120 + _PER_BAR * max(1, count),
    )
