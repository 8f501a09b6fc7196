"""Figures of the ranges of quantized tensors, and of the histograms of tensors."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

from qdq_widgets.figures.style import BAR, GRID, LOG_GRID, LOW, RUNS, TEXT, layout, plain

SHOWN_TENSORS = 40
_NAME_LIMIT = 40


def ranges_figure(result: Any, plan: Any) -> Any:
    """Return a plotly figure of the ranges of the quantized activation tensors as bars, of the 40 widest at most."""
    import plotly.graph_objects as go

    # plotly draws the first bar at the bottom.
    rows = range_rows(result, plan)[:SHOWN_TENSORS][::-1]
    figure = go.Figure(
        go.Bar(
            orientation="h",
            y=[plain(name) for name, _, _ in rows],
            base=[low for _, low, _ in rows],
            x=[high - low for _, low, high in rows],
            customdata=[[plain(name), low, high] for name, low, high in rows],
            marker=BAR,
            hovertemplate="%{customdata[0]}: %{customdata[1]:.4g} to %{customdata[2]:.4g}<extra></extra>",
        )
    )
    figure.update_xaxes(title_text="value", **{**GRID, "zeroline": True, "zerolinecolor": "rgba(128,128,128,0.6)"})
    figure.update_yaxes(**GRID, **names_axis([name for name, _, _ in rows]))
    figure.update_layout(**layout(height=max(200, 60 + 18 * len(rows)), bargap=0.3, showlegend=False, margin=LOW))
    return figure


def names_axis(names: Sequence[str]) -> dict[str, Any]:
    """Return the axis of bars for names: every name has a bar of its own, also if shortened names are equal."""
    # Otherwise plotly takes names such as "1" or "2024-01" for numbers or dates.
    ticks = {"tickmode": "array", "tickvals": [*map(plain, names)], "ticktext": [*map(short, names)]}
    return {"type": "category", "automargin": True, **ticks}


def range_rows(result: Any, plan: Any) -> list[tuple[str, float, float]]:
    """Return name, lowest and highest value of every quantized activation tensor, the widest range first."""
    names = dict.fromkeys(tensor.tensor for tensor in plan.tensors if tensor.kind == "activation")
    rows = [(name, *result.ranges[name]) for name in names if name in result.ranges]
    return sorted(rows, key=lambda item: item[1] - item[2])


def histogram_figure(histograms: Any) -> Any:
    """Draw `Histogram` objects one below the other, with the ends of ranges and grids."""
    import plotly.graph_objects as go
    from plotly.subplots import make_subplots

    shown = list(histograms)
    figure = make_subplots(
        rows=len(shown),
        cols=1,
        subplot_titles=[histogram_title(item) for item in shown],
        # A share of the whole figure; plotly refuses more than 1 / (rows - 1).
        vertical_spacing=0.36 / max(1, len(shown)),
    )
    for row, item in enumerate(shown, 1):
        centres = [(low + high) / 2 for low, high in itertools.pairwise(item.edges)]
        bar = go.Bar(
            x=centres,
            y=list(item.counts),
            marker=BAR,
            width=item.edges[1] - item.edges[0],
            hovertemplate="%{y} values around %{x:.4g}<extra></extra>",
        )
        figure.add_trace(bar, row=row, col=1)
        for value, text, color, dash in _marks(item):
            mark = {"text": f"{text} {value:.4g}", "font": {"color": color}}
            figure.add_vline(x=value, line={"color": color, "dash": dash}, annotation=mark, row=row, col=1)
        figure.update_xaxes(**GRID, row=row, col=1)
        figure.update_yaxes(title_text="values", type="log", **LOG_GRID, row=row, col=1)
    figure.update_annotations(font_size=12)
    figure.update_layout(**layout(height=40 + 260 * len(shown), showlegend=False, bargap=0))
    return figure


def histogram_title(histogram: Any) -> str:
    """Return the title of a `Histogram`: tensor, grid and the share of saturated values."""
    if histogram.clips is None:
        return f"{short(histogram.tensor)}: float ({histogram.kind})"
    return (
        f"{short(histogram.tensor)}: {plain(histogram.grid)}; {100 * histogram.outside:.3g} % of the values saturate "
        "beyond the grid"
    )


def _marks(histogram: Any) -> list[tuple[float, str, str, str]]:
    """Return the vertical lines to draw: the ends of the grid, and those of the range that are not near to them."""
    marks = []
    if histogram.clips is not None:
        low, high = histogram.clips
        marks = [(low, "grid from", RUNS[0], "solid"), (high, "grid to", RUNS[0], "solid")]
    # The texts of lines that are nearer to each other would overlap.
    near = 0.02 * (histogram.edges[-1] - histogram.edges[0])
    if histogram.kind == "weight":
        return marks  # a weight's range is where its bars end
    return marks + [
        (value, text, TEXT, "dash")
        for value, text in ((histogram.low, "lowest"), (histogram.high, "highest"))
        if all(abs(value - taken) > near for taken, *_ in marks)
    ]


def short(name: str) -> str:
    """Return a tensor's name, shortened in the middle and escaped for plotly."""
    if len(name) > _NAME_LIMIT:
        half = _NAME_LIMIT // 2 - 1
        name = f"{name[:half]}…{name[-half:]}"
    return plain(name)
