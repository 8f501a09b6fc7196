"""The sensitivity ranking as a figure."""

from __future__ import annotations

import math
from typing import Any

from qdq_workbench.analysis.sensitivity_report import SensitivityReport

_BAR, _NEUTRAL = "#0072B2", "#7A7A7A"
_PER_BAR = 22  # pixels


def sensitivity_figure(report: SensitivityReport, top: int = 40) -> Any:
    """Draw a sensitivity report as bars, the most sensitive layer on top.

    Args:
        report: What `sensitivity` returned.
        top: How many layers to draw at most.

    Returns:
        A `plotly.graph_objects.Figure` with a transparent ground, which suits light and dark pages. A layer whose
        value is infinite (its quantization changes nothing) has no bar, but a text that says so.
    """
    import plotly.graph_objects as go

    entries = report.ranked()[:top]
    finite = [entry.value if math.isfinite(entry.value) else None for entry in entries]
    # Axis and hover texts understand some HTML, so a layer's name must not bring its own.
    names = [entry.layer.replace("<", "&lt;") for entry in entries]
    unit = f", {report.unit}" if report.unit else ""
    figure = go.Figure()
    figure.add_bar(
        x=finite,
        y=names,
        orientation="h",
        marker={"color": _BAR},
        text=[f"{entry.value:.4g}" for entry in entries],
        hovertemplate="%{y}: %{text}" + report.unit.replace("<", "&lt;") + "<extra></extra>",
    )
    if math.isfinite(report.quantized_value):
        figure.add_vline(
            x=report.quantized_value,
            line={"color": _NEUTRAL, "width": 1, "dash": "dot"},
            annotation={"text": "all quantized", "font": {"size": 11, "color": _NEUTRAL}},
        )
    what = "only this layer quantized" if report.mode == "one_on" else "all layers but this one quantized"
    grid = {"gridcolor": "rgba(128,128,128,0.25)", "zeroline": False, "linecolor": _NEUTRAL}
    better = "higher" if report.higher_is_better else "lower"
    title = f"{report.metric}{unit}, {better} is better ({what})".replace("<", "&lt;")
    figure.update_layout(
        xaxis={"title": {"text": title}, **grid},
        # A category per layer, even where names look like numbers; the first entry on top.
        yaxis={"autorange": "reversed", "type": "category", "automargin": True},
        paper_bgcolor="rgba(0,0,0,0)",
        plot_bgcolor="rgba(0,0,0,0)",
        font={"color": _NEUTRAL, "family": "system-ui, sans-serif"},
        margin={"l": 20, "r": 20, "t": 30, "b": 50},
        height=120 + _PER_BAR * max(1, len(entries)),
    )
    return figure
