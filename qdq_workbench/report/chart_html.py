"""Charts as HTML that needs no network and sends nothing."""

from __future__ import annotations

from typing import Any

# From 7.0 on, plotly draws a button that uploads a chart to its makers unless it is told not to.
_CONFIG = {"displaylogo": False, "showSendToCloud": False}


def chart_html(figure: Any, **options: Any) -> str:
    """Return a `plotly.graph_objects.Figure` as HTML with plotly's script in it; the options are those of `to_html`."""
    return str(figure.to_html(include_plotlyjs=True, config=_CONFIG, **options))
