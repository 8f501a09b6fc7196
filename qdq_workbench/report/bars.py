"""Horizontal bars with a name each, on a transparent ground, which suits light and dark pages."""

from __future__ import annotations

from typing import Any

BAR, SECOND, NEUTRAL = "#0072B2", "#E69F00", "#7A7A7A"
_PER_BAR = 22  # pixels


def plain(name: str) -> str:
    """Return a name as plotly shows it: axis and hover texts understand some HTML, which a layer's name must not bring.

    Args:
        name: The name.
    """
    return name.replace("<", "&lt;")


def arrange_bars(figure: Any, title: str, count: int) -> None:
    """Give a figure of horizontal bars its axes, ground and height.

    Args:
        figure: A `plotly.graph_objects.Figure`; the first entry comes on top.
        title: Title of the value axis.
        count: How many bars lie below each other.
    """
    grid = {"gridcolor": "rgba(128,128,128,0.25)", "zeroline": False, "linecolor": NEUTRAL}
    figure.update_layout(
        xaxis={"title": {"text": plain(title)}, **grid},
        # A category per layer, even where names look like numbers.
        yaxis={"autorange": "reversed", "type": "category", "automargin": True},
        paper_bgcolor="rgba(0,0,0,0)",
        plot_bgcolor="rgba(0,0,0,0)",
        font={"color": NEUTRAL, "family": "system-ui, sans-serif"},
        margin={"l": 20, "r": 20, "t": 30, "b": 50},
        height=120 + _PER_BAR * max(1, count),
    )
