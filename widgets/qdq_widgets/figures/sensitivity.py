"""A metric per layer as bars, the layer that deserves attention first on top."""

from __future__ import annotations

from typing import Any

from qdq_widgets.figures.ranges import short
from qdq_widgets.figures.style import BAR, GRID, LOW, layout, plain

SHOWN_LAYERS = 40


def metric_figure(metric: Any) -> Any:
    """Draw a metric as bars.

    Args:
        metric: A `Metric`; at most 40 layers are drawn.
    """
    import plotly.graph_objects as go

    rows = metric.ranked()[:SHOWN_LAYERS][::-1]
    unit = f" {metric.unit}" if metric.unit else ""
    figure = go.Figure(
        go.Bar(
            orientation="h",
            y=[short(name) for name, _ in rows],
            x=[value for _, value in rows],
            customdata=[plain(name) for name, _ in rows],
            marker=BAR,
            hovertemplate=f"%{{customdata}}: %{{x:.4g}}{plain(unit)}<extra></extra>",
        )
    )
    figure.update_xaxes(title_text=plain(f"{metric.name}{unit and f',{unit}'}"), **GRID)
    figure.update_yaxes(**GRID, automargin=True, type="category")
    figure.update_layout(**layout(height=max(200, 65 + 18 * len(rows)), bargap=0.3, showlegend=False, margin=LOW))
    return figure
