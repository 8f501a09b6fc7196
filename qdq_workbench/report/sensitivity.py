"""The sensitivity ranking as a figure."""

from __future__ import annotations

import math
from typing import Any

from qdq_workbench.analysis.sensitivity_report import SensitivityReport
from qdq_workbench.report.bars import BAR, NEUTRAL, arrange_bars, plain


def sensitivity_figure(report: SensitivityReport, top: int = 40) -> Any:
    """Draw a sensitivity report as bars, the most sensitive layer on top.

    Args:
        report: A report made by `sensitivity`.
        top: Maximum number of layers.

    Returns:
        A `plotly.graph_objects.Figure` with a transparent background, for light and dark pages. A layer whose value is
        infinite (for SQNR: its quantization changes nothing) or NaN has no bar, only the value as text.
    """
    import plotly.graph_objects as go

    entries = report.ranked()[:top]
    finite = [entry.value if math.isfinite(entry.value) else None for entry in entries]
    names = [plain(entry.layer) for entry in entries]
    unit = f", {report.unit}" if report.unit else ""
    figure = go.Figure()
    figure.add_bar(
        x=finite,
        y=names,
        orientation="h",
        marker={"color": BAR},
        text=[f"{entry.value:.4g}" for entry in entries],
        hovertemplate="%{y}: %{text}" + plain(report.unit) + "<extra></extra>",
    )
    if math.isfinite(report.quantized_value):
        figure.add_vline(
            x=report.quantized_value,
            line={"color": NEUTRAL, "width": 1, "dash": "dot"},
            annotation={"text": "all quantized", "font": {"size": 11, "color": NEUTRAL}},
        )
    what = "only this layer quantized" if report.mode == "one_on" else "all layers but this one quantized"
    better = "higher" if report.higher_is_better else "lower"
    arrange_bars(figure, f"{report.metric}{unit}, {better} is better ({what})", len(entries))
    return figure
