"""The values pane: histograms of any tensors, with their ranges and grids."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import ipywidgets as widgets

from qdq_widgets.callback_errors import shows_errors
from qdq_widgets.errors import BenchError
from qdq_widgets.figures.live import fitted, live_figure
from qdq_widgets.figures.ranges import histogram_figure
from qdq_widgets.histograms import known_tensors, tensors_of_layer
from qdq_widgets.pane import Pane, button, row, text_html
from qdq_widgets.replacing import replace_children

SHOWN_TENSORS = 8
_LISTED = 400


class HistogramsPane(Pane):
    """Draws histograms of the tensors chosen in a list, or of the layer selected in the graph."""

    title = "Values"
    events = ("plan", "job", "selection")

    def build(self) -> Sequence[Any]:
        """Make the widgets."""
        self._known: dict[str, str] = {}
        self._of_layer: list[str] = []
        self._selection: tuple[str, ...] = ()
        self.filter = widgets.Text(placeholder="Filter: part of a name, weight, float", layout={"width": "330px"})
        self.filter.observe(lambda _: self._list(), "value")
        self.tensors = widgets.SelectMultiple(rows=6, layout={"width": "min(560px, 100%)"})
        self.tensors.tooltip = "Tensors to draw"
        self.draw = button("Draw", self._draw, icon="bar-chart", style="primary", tooltip="Count the values and draw")
        self.layer = button(
            "Of the selected layer",
            self._draw_layer,
            icon="hand-pointer-o",
            tooltip="Inputs, weights and outputs of the layer that is selected in the graph",
        )
        self._note = widgets.HTML()
        self.figure_box = widgets.VBox()
        return [row(self.filter, self.draw, self.layer), self.errors.widget, self.tensors, self._note, self.figure_box]

    def select(self, names: Sequence[str]) -> None:
        """Choose the tensors of the last of the selected nodes."""
        nodes = [node for node in self.bench.graph.nodes if names and node.name == names[-1]]
        self._of_layer = tensors_of_layer(self.bench.plan, nodes[0]) if nodes else []
        self.layer.disabled = not self._of_layer or self.bench.jobs.current is not None
        if self._of_layer:
            # A filter could hide the tensors of the layer.
            self.filter.value = ""
            offered = {name for _, name in self.tensors.options}
            self.tensors.value = [name for name in self._of_layer if name in offered]

    def refresh(self) -> None:
        """Offer the tensors of the present plan."""
        busy = self.bench.jobs.current is not None
        self.draw.disabled = busy
        self.layer.disabled = busy or not self._of_layer
        known = known_tensors(self.bench.plan)
        if known != self._known:
            self._known = known
            self._list()
        if self.bench.selection != self._selection:
            self._selection = self.bench.selection
            self.select(self._selection)
        if not self.figure_box.children:
            self._note.value = text_html(
                "Choose tensors (with Ctrl or Shift several), or select a layer in the graph. Activations are read "
                "from a few samples of the calibration data.",
                "qdq-muted",
            )

    def _list(self) -> None:
        words = self.filter.value.lower().split()
        found = [
            (name, kind)
            for name, kind in self._known.items()
            if all(word in f"{name} {kind}".lower() for word in words)
        ]
        shown = dict(found[:_LISTED])
        # First, since setting the options clears the selection.
        kept = [name for name in self.tensors.value or self._of_layer if name in shown]
        self.tensors.options = [(f"{name}   ({kind})", name) for name, kind in shown.items()]
        self.tensors.value = kept

    @shows_errors
    def _draw(self) -> None:
        if not self.tensors.value:
            raise BenchError("Choose one or more tensors from the list first. Received: none")
        self._start(list(self.tensors.value))

    @shows_errors
    def _draw_layer(self) -> None:
        self._start(self._of_layer)

    def _start(self, names: list[str]) -> None:
        shown = names[:SHOWN_TENSORS]

        def work() -> None:
            found = self.bench.histograms(shown)
            replace_children(self.figure_box, (fitted(live_figure(histogram_figure(found))),))
            hidden = f"; the first {SHOWN_TENSORS} of {len(names)} are drawn" if len(names) > SHOWN_TENSORS else ""
            self._note.value = text_html(f"{self.bench.stage}, plan for {self.bench.plan.target}{hidden}", "qdq-muted")

        self.start(work)
