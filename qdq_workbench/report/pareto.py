"""A figure of the placements that a search tried: accuracy against cost, with the Pareto front."""

from __future__ import annotations

from typing import Any

from qdq_workbench.analysis.search_result import SearchResult, SearchStep
from qdq_workbench.report.bars import BAR, NEUTRAL, SECOND, plain

_COSTS = {"ms": "ms per run", "bytes": "bytes of weights", "macs": "multiply-accumulate operations in float"}


def pareto_figure(result: SearchResult) -> Any:
    """Draw everything that a search tried: accuracy over time if files were timed, else over the objective's cost.

    Args:
        result: A result of `search`.

    Returns:
        A `plotly.graph_objects.Figure` with a transparent background, for light and dark pages: the front as a line,
        the placement that was found as a star, the floor and the budget as dotted lines.
    """
    import plotly.graph_objects as go

    kind = "ms" if any(step.ms is not None for step in result.history) else result.objective
    kind = kind if kind in _COSTS else "bytes"
    steps = [step for step in result.pareto if _cost(step, kind) is not None]
    front = _front(steps, kind)
    figure = go.Figure()
    for name, shown, style in (
        ("tried", steps, {"mode": "markers", "marker": {"color": NEUTRAL, "size": 7}}),
        ("Pareto front", front, {"mode": "lines+markers", "line": {"color": BAR}, "marker": {"size": 8}}),
        ("found", [result.best], {"mode": "markers", "marker": {"color": SECOND, "size": 15, "symbol": "star"}}),
    ):
        figure.add_scatter(
            x=[_cost(step, kind) for step in shown],
            y=[step.accuracy for step in shown],
            name=name,
            hovertext=[plain(_text(step)) for step in shown],
            hoverinfo="text",
            **style,
        )
    dotted = {"line": {"color": NEUTRAL, "width": 1, "dash": "dot"}}
    if result.search_floor is not None:
        figure.add_hline(y=result.search_floor, **dotted)
    budget = {"ms": result.max_ms, "bytes": result.max_bytes}.get(kind)
    if budget is not None:
        figure.add_vline(x=budget, **dotted)
    figure.update_layout(
        xaxis_title=_COSTS[kind],
        yaxis_title=f"{plain(result.metric)}, on the samples of the search",
        paper_bgcolor="rgba(0,0,0,0)",
        plot_bgcolor="rgba(0,0,0,0)",
        height=380,
        margin={"l": 60, "r": 20, "t": 20, "b": 50},
    )
    return figure


def _cost(step: SearchStep, kind: str) -> float | None:
    return {"ms": step.ms, "bytes": float(step.weight_bytes), "macs": float(step.float_macs)}[kind]


def _front(steps: list[SearchStep], kind: str) -> list[SearchStep]:
    """Return the Pareto front in the two dimensions of the figure."""
    front: list[SearchStep] = []
    # The most accurate of equal cost comes first, so that none of the others is taken for a part of the front.
    for step in sorted(steps, key=lambda step: (_cost(step, kind) or 0.0, -step.accuracy)):
        if not front or step.accuracy > front[-1].accuracy:
            front.append(step)
    return front


def _text(step: SearchStep) -> str:
    ms = "" if step.ms is None else f", {step.ms:.4f} ms"
    return f"{step.accuracy:.4f}, {step.weight_bytes:,} bytes{ms}: {step.label}"
