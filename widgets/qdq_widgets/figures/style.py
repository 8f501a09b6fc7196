"""The style of the bench's figures: transparent, for light and dark pages, and colour-blind safe."""

from __future__ import annotations

from typing import Any

# Okabe-Ito; dashes distinguish lines without colour.
FP32, PTQ = "#7A7A7A", "#0072B2"
RUNS = ("#D55E00", "#007A5A", "#CC79A7", "#E69F00", "#56B4E9")
DASHES = ("solid", "dash", "dashdot", "dot", "longdash")
TEXT = "#7A7A7A"
GRID = {"gridcolor": "rgba(128,128,128,0.25)", "zeroline": False, "linecolor": TEXT}
BAR = {"color": PTQ, "line": {"width": 0}}
LOW = {"l": 60, "r": 20, "t": 8, "b": 45}  # margins of a figure with nothing above it
LOG_GRID = {**GRID, "dtick": 1}  # whole powers of ten only: plotly's 2 and 5 between them crowd a small figure


def layout(**changes: Any) -> dict[str, Any]:
    """Return the common layout of all figures, with changed settings of plotly's layout."""
    shared: dict[str, Any] = {
        "autosize": True,
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "font": {"color": TEXT, "family": "system-ui, sans-serif", "size": 12},
        "margin": {"l": 60, "r": 20, "t": 40, "b": 45},
        "legend": {"orientation": "h", "y": 1.08, "yanchor": "bottom", "x": 0},
    }
    return {**shared, **changes}


def plain(text: str) -> str:
    """Return a name escaped for plotly, which interprets some HTML in texts.

    Example:
        >>> plain("<b>conv</b>")
        '&lt;b&gt;conv&lt;/b&gt;'
    """
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
