"""The time of every layer as a figure."""

from __future__ import annotations

from typing import Any

from qdq_workbench.profiling.latency import KINDS, LatencyReport
from qdq_workbench.report.bars import BAR, NEUTRAL, SECOND, arrange_bars, plain


def latency_figure(report: LatencyReport, top: int = 40) -> Any:
    """Draw a latency report as bars, the slowest layer on top; with a baseline, both times of every group of layers.

    Args:
        report: A report made by `profile_onnx`.
        top: Maximum number of layers, or with a baseline of groups. Without a baseline, time that belongs to no layer
            is drawn below the layers.

    Returns:
        A `plotly.graph_objects.Figure` with a transparent background, for light and dark pages.
    """
    import plotly.graph_objects as go

    figure = go.Figure()
    if report.baseline is not None:
        gains = sorted(report.gains, key=lambda gain: -gain.baseline_ms - gain.ms)[:top]
        names = [plain(" + ".join(gain.layers)) for gain in gains]
        for label, color, values in (
            (report.baseline.path.name, NEUTRAL, [gain.baseline_ms for gain in gains]),
            (report.path.name, BAR, [gain.ms for gain in gains]),
        ):
            figure.add_bar(x=values, y=names, orientation="h", marker={"color": color}, name=plain(label))
        figure.update_layout(barmode="group")
        rows = 2 * len(gains)
    else:
        layers = report.ranked()[:top]
        figure.add_bar(
            x=[entry.ms for entry in layers],
            y=[plain(entry.layer) for entry in layers],
            orientation="h",
            marker={"color": BAR},
            text=[f"{entry.share:.1%}" for entry in layers],
            hovertext=[
                plain(", ".join([*entry.kernels, *(f"with {name}" for name in entry.fused)])) for entry in layers
            ],
            name="layers",
        )
        figure.add_bar(
            x=[entry.ms for entry in report.others],
            y=[plain(f"{KINDS[entry.what]} {entry.name}".strip()) for entry in report.others],
            orientation="h",
            marker={"color": SECOND},
            text=[f"{entry.share:.1%}" for entry in report.others],
            name="no layer's",
        )
        rows = len(layers) + len(report.others)
    arrange_bars(figure, f"ms per run, of {report.total_ms:.3f}", rows)
    return figure
