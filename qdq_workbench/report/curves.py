"""Accuracy curves, drawn as PNG with matplotlib or as a self-contained page with plotly."""

from __future__ import annotations

import dataclasses
import math
import pathlib
from collections.abc import Sequence
from typing import Any

from qdq_workbench._files import write_atomically, write_text
from qdq_workbench.errors import DataError
from qdq_workbench.report.chart_html import chart_html

# Okabe-Ito colours, which all kinds of colour vision can distinguish; the dashes distinguish lines without colour.
_STYLES = (("#0072B2", "dash"), ("#D55E00", "solid"), ("#007A5A", "dot"), ("#CC79A7", "dashdot"))
_MATPLOTLIB_DASHES = {"dash": "--", "solid": "-", "dot": ":", "dashdot": "-."}
_NEUTRAL = "#7A7A7A"
#: Percentage points that the axis shows at least: on a narrower one a single image would look like a collapse.
_LEAST_SPAN = 5.0


@dataclasses.dataclass(frozen=True)
class Curve:
    """One line of an accuracy plot.

    Args:
        name: The name of the line in the legend.
        epochs: Finished epochs, ascending; 0 is the state before training.
        accuracy: Accuracy after each of them, from 0 to 1.

    Raises:
        DataError: If the two differ in length or are empty.

    Example:
        >>> Curve("QAT", (0, 1), (0.97, 0.98)).to_dict()
        {'name': 'QAT', 'epochs': [0, 1], 'accuracy': [0.97, 0.98]}
    """

    name: str
    epochs: tuple[int, ...]
    accuracy: tuple[float, ...]

    def __post_init__(self) -> None:
        if not self.epochs or len(self.epochs) != len(self.accuracy):
            raise DataError(
                "A curve needs as many accuracies as epochs, and at least one. "
                f"Received: {len(self.epochs)} epochs, {len(self.accuracy)} accuracies for {self.name!r}"
            )

    def to_dict(self) -> dict[str, Any]:
        """Return the curve as a JSON-compatible dictionary."""
        return {"name": self.name, "epochs": list(self.epochs), "accuracy": list(self.accuracy)}


@dataclasses.dataclass(frozen=True)
class Level:
    """A horizontal line of an accuracy plot: an accuracy that curves are compared with.

    Args:
        name: The label of the line.
        accuracy: From 0 to 1.
    """

    name: str
    accuracy: float


def curves_figure(curves: Sequence[Curve], levels: Sequence[Level] = (), title: str = "") -> Any:
    """Return a plotly figure of the curves, with a transparent background for light and dark pages."""
    import plotly.graph_objects as go

    figure = go.Figure()
    for curve, (colour, dash) in zip(curves, _cycle(len(curves)), strict=True):
        figure.add_scatter(
            x=curve.epochs,
            y=[100 * value for value in curve.accuracy],
            # plotly renders some HTML in legends and hover texts, so names are escaped.
            name=curve.name.replace("<", "&lt;"),
            mode="lines+markers",
            line={"color": colour, "dash": dash},
            hovertemplate="%{y:.2f} % after epoch %{x}<extra>%{fullData.name}</extra>",
        )
    for level in levels:
        figure.add_hline(
            y=100 * level.accuracy,
            line={"color": _NEUTRAL, "width": 1, "dash": "dot"},
            # Beside its line, a name would lie on the curves that meet it.
            name=f"{level.name} {100 * level.accuracy:.2f}".replace("<", "&lt;"),
            showlegend=True,
        )
    grid = {"gridcolor": "rgba(128,128,128,0.25)", "zeroline": False, "linecolor": _NEUTRAL}
    figure.update_layout(
        title={"text": title.replace("<", "&lt;")},
        xaxis={"title": {"text": "epochs of fine-tuning"}, "dtick": _tick(curves), **grid},
        yaxis={"title": {"text": "accuracy, %"}, "range": _percent_axis(curves, levels), **grid},
        # Below the figure: above it, the entries of a narrow page lie on the title.
        legend={"orientation": "h", "y": -0.18, "yanchor": "top"},
        paper_bgcolor="rgba(0,0,0,0)",
        plot_bgcolor="rgba(0,0,0,0)",
        font={"color": _NEUTRAL, "family": "system-ui, sans-serif"},
        margin={"l": 60, "r": 20, "t": 60 if title else 20, "b": 50},
    )
    return figure


def write_curves_html(path: str | pathlib.Path, curves: Sequence[Curve], levels: Sequence[Level] = ()) -> pathlib.Path:
    """Write the curves as one HTML file that needs no network, and return its path."""
    figure = curves_figure(curves, levels, title="Accuracy")
    return write_text(path, chart_html(figure))


def write_curves_png(path: str | pathlib.Path, curves: Sequence[Curve], levels: Sequence[Level] = ()) -> pathlib.Path:
    """Write the curves as a PNG image of 1200 x 750 pixels, and return its path."""
    # Figure instead of pyplot: needs no global state and no display.
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    figure = Figure(figsize=(8, 5), dpi=150, layout="constrained")
    axes = figure.add_subplot()
    for curve, (colour, dash) in zip(curves, _cycle(len(curves)), strict=True):
        axes.plot(
            curve.epochs,
            [100 * value for value in curve.accuracy],
            # matplotlib typesets text between two dollar signs as mathematics.
            label=curve.name.replace("$", r"\$"),
            color=colour,
            linestyle=_MATPLOTLIB_DASHES[dash],
            marker="o",
            markersize=4,
        )
    for level in levels:
        label = f"{level.name} {100 * level.accuracy:.2f}".replace("$", r"\$")
        axes.axhline(100 * level.accuracy, color=_NEUTRAL, linewidth=1, linestyle=":", label=label)
    axes.set_xlabel("epochs of fine-tuning")
    axes.set_ylabel("accuracy, %")
    axes.set_ylim(*_percent_axis(curves, levels))
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.grid(visible=True, alpha=0.3)
    if curves or levels:
        axes.legend(frameon=False)
    return write_atomically(path, lambda temporary: figure.savefig(temporary, format="png"))


def _cycle(count: int) -> list[tuple[str, str]]:
    return [_STYLES[index % len(_STYLES)] for index in range(count)]


def _tick(curves: Sequence[Curve]) -> int:
    last = max((curve.epochs[-1] for curve in curves), default=1)
    return max(1, last // 10)


def _percent_axis(curves: Sequence[Curve], levels: Sequence[Level]) -> tuple[float, float]:
    """Return the ends of the axis in percent: all values with a margin, `_LEAST_SPAN` wide at least."""
    drawn = [*(value for curve in curves for value in curve.accuracy), *(level.accuracy for level in levels)]
    values = [100 * value for value in drawn if math.isfinite(value)] or [0.0, 100.0]
    low, high = min(values), max(values)
    half = max((high - low) * 0.55, _LEAST_SPAN / 2)
    middle = (low + high) / 2
    if middle + half > 100 >= high:  # nothing is better than 100 %: the room goes below
        middle = 100 + _LEAST_SPAN / 20 - half
    return middle - half, middle + half
