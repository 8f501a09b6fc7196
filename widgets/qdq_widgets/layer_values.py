"""Small histograms of the selected layer's tensors in the inspector, with the ends of the grids."""

from __future__ import annotations

import html
import math
from collections.abc import Callable
from typing import Any

import ipywidgets as widgets

from qdq_widgets.histograms import Histogram, tensors_of_layer
from qdq_widgets.pane import row, text_html
from qdq_widgets.state import plan_key

_WIDTH, _HEIGHT, _BASE = 360, 86, 68
_MOST_TENSORS = 4
_KEPT = 64


class LayerValues:
    """A switch, and while it is on, histograms of a layer's inputs, weights and outputs.

    Counting is a long task: while another one runs, it starts only when the layer is shown again.

    Args:
        bench: The `Workbench`.
        start: Runs a function in the background and shows its errors.
    """

    def __init__(self, bench: Any, start: Callable[[Callable[[], Any]], None]) -> None:
        self._bench, self._start = bench, start
        self._node: Any = None
        self._known: dict[Any, tuple[Histogram, ...]] = {}
        self._of: tuple[Any, Any] = (None, None)  # the model and the calibration of the known histograms
        self.switch = widgets.ToggleButton(description="Values", icon="bar-chart", layout={"width": "auto"})
        self.switch.tooltip = "Histograms of what the selected layer reads, holds and gives, with the ends of the grids"
        self.switch.observe(lambda _: self._draw(), "value")
        self.drawn = widgets.HTML()
        self.widget = widgets.VBox([row(self.switch), self.drawn])
        self.show(None)

    def show(self, node: Any) -> None:
        """Show another node; None hides the switch."""
        self._node = node
        self.widget.layout.display = "none" if node is None else ""
        self._draw()

    def _draw(self) -> None:
        node = self._node
        if node is None or not self.switch.value:
            self.drawn.value = ""
            return
        names = tensors_of_layer(self._bench.plan, node)[:_MOST_TENSORS]
        work, key = self._bench.snapshot, (plan_key(self._bench.plan), tuple(names))
        if self._of[0] is not work.model or self._of[1] is not work.calibration:
            self._of, self._known = (work.model, work.calibration), {}
        if key in self._known:
            self.drawn.value = "".join(map(histogram_svg, self._known[key]))
        elif not names:
            self.drawn.value = text_html("It neither reads nor holds real numbers.", "qdq-muted")
        elif self._bench.jobs.current is not None:
            self.drawn.value = text_html("Something else is running; select the layer again after it.", "qdq-muted")
        else:
            self.drawn.value = text_html("Counting …", "qdq-muted")
            self._start(lambda: self._count(node, names, key))

    def _count(self, node: Any, names: list[str], key: Any) -> None:
        try:
            found = self._bench.histograms(names)
        except BaseException:
            self.drawn.value = ""
            raise
        self._known[key] = found
        while len(self._known) > _KEPT:
            del self._known[next(iter(self._known))]
        # Another layer may have been selected meanwhile.
        if self._node is node and self.switch.value:
            self.drawn.value = "".join(map(histogram_svg, found))


def histogram_svg(histogram: Histogram) -> str:
    """Return a histogram as a small SVG picture: grey bars are values, the green line below them is the grid.

    Heights are logarithmic, so that a few outliers are visible.
    """
    low, high = histogram.edges[0], histogram.edges[-1]
    span = (high - low) or 1.0
    top = max(histogram.counts) or 1

    def across(value: float) -> float:
        return max(0.0, min(1.0, (value - low) / span)) * _WIDTH

    width = _WIDTH / len(histogram.counts)
    bars = "".join(
        f'<rect x="{place * width:.1f}" y="{_BASE - height:.1f}" width="{width:.2f}" height="{height:.1f}"/>'
        for place, count in enumerate(histogram.counts)
        if (height := _log_height(count, top)) > 0
    )
    said = f"{histogram.tensor}: {low:.3g} to {high:.3g}, float"
    grid = ""
    if histogram.clips is not None:
        ends = [across(end) for end in histogram.clips]
        grid = f'<rect class="qdq-grid" x="{ends[0]:.1f}" y="{_BASE}" width="{ends[1] - ends[0]:.1f}" height="4"/>'
        share = f"{100 * histogram.outside:.3g} % saturate"
        said = (
            f"{histogram.tensor}: {histogram.grid}, grid {histogram.clips[0]:.3g} to {histogram.clips[1]:.3g}; {share}"
        )
    text = html.escape(said, quote=True)
    ticks = "".join(
        f'<text x="{across(value):.0f}" y="{_HEIGHT - 2}" text-anchor="{anchor}">{value:.3g}</text>'
        for value, anchor in ((low, "start"), (high, "end"))
    )
    return (
        f'<figure class="qdq-values"><svg role="img" aria-label="{text}" viewBox="0 0 {_WIDTH} {_HEIGHT}">'
        f"{bars}{grid}{ticks}</svg><figcaption>{text}</figcaption></figure>"
    )


def _log_height(count: int, top: int) -> float:
    """Return a height on a logarithmic scale: a bar of one value is visible beside one of a million."""
    if count == 0:
        return 0.0
    return (_BASE - 6) * math.log2(1 + count) / math.log2(1 + top)
