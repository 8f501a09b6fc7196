"""What calibration found: the range of every quantized tensor, and the histogram of one of them."""

from __future__ import annotations

import itertools
from typing import Any

from qdq_widgets.figures.style import GRID, PTQ, RUNS, layout, plain

SHOWN_TENSORS = 40
_NAME_LIMIT = 40


def ranges_figure(result: Any, plan: Any) -> Any:
    """Draw the ranges of the quantized activation tensors as bars from the lowest to the highest value.

    Args:
        result: A `CalibrationResult`.
        plan: The plan that says which tensors are quantized; at most 40 are drawn, the widest first.
    """
    import plotly.graph_objects as go

    rows = range_rows(result, plan)[:SHOWN_TENSORS][::-1]
    figure = go.Figure(
        go.Bar(
            orientation="h",
            y=[short(name) for name, _, _ in rows],
            base=[low for _, low, _ in rows],
            x=[high - low for _, low, high in rows],
            customdata=[[plain(name), low, high] for name, low, high in rows],
            marker={"color": PTQ},
            hovertemplate="%{customdata[0]}: %{customdata[1]:.4g} to %{customdata[2]:.4g}<extra></extra>",
        )
    )
    figure.update_xaxes(title_text="value", **{**GRID, "zeroline": True, "zerolinecolor": "rgba(128,128,128,0.6)"})
    figure.update_yaxes(**GRID, automargin=True, type="category")
    figure.update_layout(**layout(height=max(220, 60 + 18 * len(rows)), bargap=0.3, showlegend=False))
    return figure


def range_rows(result: Any, plan: Any) -> list[tuple[str, float, float]]:
    """Return name, lowest and highest value of every quantized activation tensor, the widest first.

    Args:
        result: A `CalibrationResult`.
        plan: A `PlacementPlan`.
    """
    names = dict.fromkeys(tensor.name for tensor in plan.tensors if tensor.kind == "activation")
    rows = [(name, *result.ranges[name]) for name in names if name in result.ranges]
    return sorted(rows, key=lambda item: item[1] - item[2])


def histogram_figure(histogram: Any) -> Any:
    """Draw how often the values of one tensor occur, with the ends of its range.

    Args:
        histogram: A `Histogram`.
    """
    import plotly.graph_objects as go

    edges = histogram.edges
    centres = [(low + high) / 2 for low, high in itertools.pairwise(edges)]
    figure = go.Figure(go.Bar(x=centres, y=list(histogram.counts), marker={"color": PTQ}, width=edges[1] - edges[0]))
    for value, text in ((histogram.low, "lowest"), (histogram.high, "highest")):
        figure.add_vline(x=value, line={"color": RUNS[0], "dash": "dash"}, annotation={"text": f"{text} {value:.4g}"})
    title = f"{short(histogram.tensor)}: {100 * histogram.outside:.3g} % of the values are outside of the range"
    figure.update_xaxes(title_text="value", **GRID)
    figure.update_yaxes(title_text="values", type="log", **GRID)
    figure.update_layout(**layout(height=300, title={"text": title, "font": {"size": 13}}, showlegend=False, bargap=0))
    return figure


def short(name: str) -> str:
    """Return a tensor's name, shortened in the middle and safe for plotly.

    Args:
        name: The name.
    """
    if len(name) > _NAME_LIMIT:
        half = _NAME_LIMIT // 2 - 1
        name = f"{name[:half]}…{name[-half:]}"
    return plain(name)
