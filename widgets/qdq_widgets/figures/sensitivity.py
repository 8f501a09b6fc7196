"""A metric per layer as bars in the graph's colours; the worst layer is on top and has the longest bar."""

from __future__ import annotations

from typing import Any

from qdq_widgets.figures.ranges import names_axis
from qdq_widgets.figures.scale import scale_colors
from qdq_widgets.figures.style import GRID, LOW, TEXT, layout, plain

SHOWN_LAYERS = 40
_ROOM = 0.06  # of the span of the values: the shortest bar can be seen


def metric_figure(metric: Any) -> Any:
    """Draw a `Metric` as bars for 40 layers at most; if high values are better, the axis is reversed.

    The worst layer then still has the longest bar.
    """
    import plotly.graph_objects as go

    # On the scale of all layers, not of the drawn ones, so that bars and graph have the same colours.
    every = dict(
        zip(metric.values, scale_colors(list(metric.values.values()), is_log=metric.scale == "log"), strict=True)
    )
    rows = drawn_layers(metric)
    values = [value for _, value in rows]
    start = _start(metric, values)
    unit = f" {metric.unit}" if metric.unit else ""
    figure = go.Figure(
        go.Bar(
            orientation="h",
            y=[plain(name) for name, _ in rows],
            base=start,
            x=[value - start for value in values],
            text=[f"{value:.3g}" for value in values],
            textposition="outside",
            # The number beside the longest bar lies beyond the axis.
            cliponaxis=False,
            customdata=[[plain(name), value] for name, value in rows],
            marker={"color": [every[name] for name, _ in rows], "line": {"width": 0.75, "color": TEXT}},
            hovertemplate=f"%{{customdata[0]}}: %{{customdata[1]:.4g}}{plain(unit)}<br>click: select it<extra></extra>",
        )
    )
    meaning = {"high": ": the lower, the worse", "low": ": the higher, the worse"}.get(metric.better, "")
    figure.update_xaxes(title_text=plain(f"{metric.name}{unit and f',{unit}'}{meaning}"), **GRID)
    if metric.better == "high":
        figure.update_xaxes(autorange="reversed")
    figure.update_yaxes(**GRID, **names_axis([name for name, _ in rows]))
    margin = {**LOW, "r": 60}
    figure.update_layout(**layout(height=max(200, 65 + 18 * len(rows)), bargap=0.3, showlegend=False, margin=margin))
    return figure


def drawn_layers(metric: Any) -> list[tuple[str, float]]:
    """Return layer and value of every bar of `metric_figure`, in plotly's order: the first one is at the bottom."""
    return list(metric.ranked()[:SHOWN_LAYERS][::-1])


def _start(metric: Any, values: list[float]) -> float:
    """Return the value at which bars begin: 0, or a little above the highest value if high values are better."""
    if metric.better != "high" or not values:
        return 0.0
    low, high = min(values), max(values)
    return high + _ROOM * ((high - low) or abs(high) or 1.0)
