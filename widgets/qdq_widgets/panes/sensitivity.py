"""The sensitivity pane: the sensitivity of layers to quantization, leaving the worst in float, and the search."""

from __future__ import annotations

from collections.abc import Sequence
from types import MappingProxyType
from typing import Any

import ipywidgets as widgets

from qdq_widgets.callback_errors import shows_errors
from qdq_widgets.checkpoint_field import CheckpointField
from qdq_widgets.figures.live import fitted, live_figure
from qdq_widgets.figures.sensitivity import drawn_layers, metric_figure
from qdq_widgets.metrics import OUTPUT_SQNR, SENSITIVITY
from qdq_widgets.pane import Pane, button, row, table_html, text_html
from qdq_widgets.replacing import replace_children
from qdq_widgets.search_section import SearchSection

_MODES = {"only this layer quantized": "one_on", "all but this layer quantized": "one_off"}
_METRICS = ("sqnr", "mse", "kl", "accuracy")
_HINT = (
    "Not measured yet. One run per layer: with only that layer quantized, or with all but it. Ranges come from the "
    "calibration. SQNR compares every layer's values with the float model's in a single pass."
)


class SensitivityPane(Pane):
    """Runs `sensitivity` and `measure_sqnr`, shows the results, and leaves layers in float."""

    title = "Sensitivity"
    events = ("sensitivity", "search", "metrics", "job", "plan", "curves")
    remembers = MappingProxyType({"checkpoint": "", "search_checkpoint": ""})

    def build(self) -> Sequence[Any]:
        """Make the widgets."""
        self.mode = widgets.Dropdown(options=list(_MODES.items()), description="Mode", layout={"width": "310px"})
        self.metric = widgets.Dropdown(options=_METRICS, description="Metric", layout={"width": "200px"})
        self.samples = widgets.BoundedIntText(
            value=128, min=1, max=10**6, description="Samples", layout={"width": "170px"}
        )
        self.run = button("Find sensitive layers", self._run, icon="play", style="primary")
        self.sqnr = button(
            "Measure SQNR",
            self._sqnr,
            icon="signal",
            tooltip="Signal to noise of every layer's output and weights under the present plan",
        )
        self.stop = button("Stop", self.bench.jobs.stop, icon="stop", style="danger", tooltip="Stop after this layer")
        self.top = widgets.BoundedIntText(
            value=1, min=1, max=1, description="The", layout={"width": "100px"}, style={"description_width": "initial"}
        )
        self.top.tooltip = "How many layers"
        self.leave = button(
            "Leave them in float", self._leave, icon="leaf", tooltip="One undoable step: an entry per layer in the spec"
        )
        self.color = button("Colour the graph", self._color, icon="paint-brush")
        self._top = row(self.top, widgets.HTML("most sensitive layers:"), self.leave)
        self._actions = row(self._top, self.color, gap="8px 24px")
        self._note = widgets.HTML()
        self._figures = widgets.VBox()
        self._drawn: Any = None
        self.figure: Any = None
        self.checkpoint = CheckpointField(self, "checkpoint", ".json")
        kept = CheckpointField(self, "search_checkpoint", ".json")
        self.search = SearchSection(self.bench, self.start, self.errors, kept)
        return [
            row(self.mode, self.metric, self.samples, self.checkpoint.field),
            row(self.run, self.sqnr, self.stop),
            self.checkpoint.note,
            self.errors.widget,
            self._note,
            self._actions,
            self._figures,
            self.search.widget,
        ]

    def refresh(self) -> None:
        """Show the last measurement and the last search."""
        self.search.refresh()
        busy = self.bench.jobs.current is not None
        self.run.disabled = self.sqnr.disabled = self.leave.disabled = busy
        self.stop.disabled = not busy
        if not busy:
            self.checkpoint.refresh()
        metric = self._shown()
        self._actions.layout.display = "none" if metric is None else ""
        if metric is None:
            self._note.value = text_html(_HINT, "qdq-muted")
            self._drawn = None
            replace_children(self._figures, ())
            return
        report = self.bench.sensitivity_report
        self._top.layout.display = "none" if report is None else ""
        if report is not None:
            self.top.max = max(1, len(report.entries))
        stale = " The plan has changed since." if self.bench.is_stale(metric) else ""
        if report is not None and not report.complete:
            stale = " The sweep was stopped: some layers are missing." + stale
        what = metric.name
        if report is not None and metric.name == SENSITIVITY:
            mode = next(text for text, mode in _MODES.items() if mode == report.mode)
            what = f"{report.metric} of the model's outputs with {mode}, on {report.samples} samples"
        meaning = {"high": "the lower, the more sensitive", "low": "the higher, the more sensitive"}
        self._note.value = text_html(f"{what}: {meaning.get(metric.better, '')}.{stale}", "qdq-muted")
        if self._drawn is not metric:
            self._drawn = metric
            rows = [
                (place, name, f"{value:.6g} {metric.unit}") for place, (name, value) in enumerate(metric.ranked(), 1)
            ]
            table = f"<details><summary>As a table</summary>{table_html(('', 'layer', metric.name), rows)}</details>"
            self.figure = live_figure(metric_figure(metric))
            self.figure.data[0].on_click(self._select)
            replace_children(self._figures, (fitted(self.figure), widgets.HTML(table)))

    def _shown(self) -> Any:
        """Return the sensitivity or the SQNR of the outputs, whichever comes last in the bench's metrics."""
        names = [name for name in self.bench.metrics if name in (SENSITIVITY, OUTPUT_SQNR)]
        return self.bench.metrics[names[-1]] if names else None

    @shows_errors
    def _select(self, _bars: Any, points: Any, _state: Any) -> None:
        """Select the layer of a clicked bar in the graph."""
        if points.point_inds:
            name, _ = drawn_layers(self._drawn)[points.point_inds[0]]
            self.bench.select([name])

    @shows_errors
    def _run(self) -> None:
        mode, metric, how = self.mode.value, self.metric.value, {"samples": self.samples.value}
        how.update(self.checkpoint.given)
        self.start(lambda: self.bench.sensitivity(mode, metric, **how))

    @shows_errors
    def _sqnr(self) -> None:
        self.start(self.bench.measure_sqnr)

    @shows_errors
    def _leave(self) -> None:
        self.bench.leave_in_float(self.top.value)

    @shows_errors
    def _color(self) -> None:
        metric = self._shown()
        if metric is not None:
            self.bench.color_by(metric.name)
