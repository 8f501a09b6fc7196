"""Accuracy and loss of FP32, PTQ and every fine-tuning run, beside each other in one figure."""

from __future__ import annotations

import math
from typing import Any

from qdq_widgets.curves import Curves, Scores, TrainingRun, interval, is_share
from qdq_widgets.figures.style import DASHES, FP32, GRID, PTQ, RUNS, layout, plain

_EDGE = 0.01  # around the lines, so that one at an accuracy of 1 is not cut in half


def curve_traces(curves: Curves) -> list[dict[str, Any]]:
    """Return the lines of the figure, each as arguments of a `go.Scatter` and the column of its subplot.

    The order stays the same while runs grow: FP32 and PTQ in both columns, then three lines per run.
    """
    last = max(
        (run.epochs[-1] if run.epochs else run.loss_trace[-1][0] if run.loss_trace else 0.0 for run in curves.runs),
        default=1.0,
    )
    span = (0.0, max(last, 1.0))
    traces = [
        _level("FP32", curves.fp32, curves.metric, 1, span, FP32, "dot"),
        _level("PTQ", curves.ptq, curves.metric, 1, span, PTQ, "dash"),
        _level("FP32", curves.fp32, "loss", 2, span, FP32, "dot"),
        _level("PTQ", curves.ptq, "loss", 2, span, PTQ, "dash"),
    ]
    for number, run in enumerate(curves.runs):
        traces += _run_lines(run, curves.metric, RUNS[number % len(RUNS)], DASHES[number % len(DASHES)])
    return traces


def curves_figure(curves: Curves, samples: int | None = None) -> Any:
    """Draw the curves: the metric on the left, the loss on the right.

    `samples` is the number of scored samples; None if it is not known.
    """
    import plotly.graph_objects as go
    from plotly.subplots import make_subplots

    figure = make_subplots(rows=1, cols=2, horizontal_spacing=0.11, subplot_titles=(" ", " "))
    for trace in curve_traces(curves):
        figure.add_trace(go.Scatter(**{k: v for k, v in trace.items() if k != "column"}), row=1, col=trace["column"])
    for column, axis in ((1, metric_axis(curves, samples)), (2, {"title_text": "loss"})):
        figure.update_xaxes(title_text="epochs of fine-tuning", **GRID, row=1, col=column)
        figure.update_yaxes(**axis, **GRID, row=1, col=column)
    # While `uirevision` stays the same, plotly keeps the user's zoom when data are added.
    figure.update_layout(**layout(height=340, hovermode="x unified", uirevision="curves"))
    return figure


def metric_axis(curves: Curves, samples: int | None) -> dict[str, Any]:
    """Return the title of the left axis, and for a share its ends, as long as the user does not zoom.

    The axis goes from a little below the lowest value to a little above the highest one. It includes the 95 % interval
    of the float model's share, so that the difference of a single sample looks small. `samples` is the number of scored
    samples; None if it is not known.
    """
    title = {"title_text": f"validation {curves.metric}" if curves.metric else "validation metric"}
    if not is_share(curves.metric):
        return title
    scored = [curves.fp32, curves.ptq, *(scores for run in curves.runs for scores in run.scores)]
    values = [scores.metrics.get(curves.metric) for scores in scored if scores is not None]
    shares = [value for value in values if value is not None and math.isfinite(value)]
    if samples and curves.fp32 is not None and curves.metric in curves.fp32.metrics:
        shares += interval(curves.fp32.metrics[curves.metric], samples)
    low, high = (min(shares), max(shares)) if shares else (0.0, 1.0)
    margin = max(_EDGE, (high - low) / 20)
    # Not "range", which a zoom of the user changes too.
    ends = {"minallowed": max(-_EDGE, low - margin), "maxallowed": min(1 + _EDGE, high + margin)}
    return {**title, "autorangeoptions": ends}


def _level(
    name: str, scores: Scores | None, metric: str, column: int, span: tuple[float, float], color: str, dash: str
) -> dict[str, Any]:
    """Return a horizontal line: the metric in the left column, the loss in the right one."""
    value = None
    if scores is not None:
        value = scores.loss if column == 2 else scores.metrics.get(metric)
    return {
        "name": name,
        "legendgroup": name,
        "showlegend": column == 1,
        "column": column,
        "mode": "lines",
        "x": [] if value is None else list(span),
        "y": [] if value is None else [value, value],
        "line": {"color": color, "dash": dash, "width": 1.5},
    }


def _run_lines(run: TrainingRun, metric: str, color: str, dash: str) -> list[dict[str, Any]]:
    name = plain(run.name if run.state == "done" else f"{run.name} ({run.state})")
    shared = {"name": name, "legendgroup": run.name}
    line = {"color": color, "dash": dash, "width": 2}
    trace = [(at, loss) for at, loss in run.loss_trace if math.isfinite(loss)]
    return [
        {
            **shared,
            "column": 1,
            "mode": "lines+markers",
            "line": line,
            "x": list(run.epochs),
            "y": [scores.metrics.get(metric) for scores in run.scores],
        },
        {
            **shared,
            "column": 2,
            "mode": "lines+markers",
            "line": line,
            "showlegend": False,
            "x": list(run.epochs),
            "y": [scores.loss for scores in run.scores],
        },
        {
            **shared,
            "name": f"{name}, training",
            "column": 2,
            "mode": "lines",
            "showlegend": False,
            "opacity": 0.55,
            "line": {**line, "width": 1.2},
            "x": [at for at, _ in trace],
            "y": [loss for _, loss in trace],
        },
    ]
