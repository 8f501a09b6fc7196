"""The speed pane: the times of the plan's file in ONNX Runtime and of the float file, layer by layer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import ipywidgets as widgets

import qdq_workbench as qdq
from qdq_widgets.callback_errors import shows_errors
from qdq_widgets.figures.live import fitted, live_figure
from qdq_widgets.metrics import LATENCY
from qdq_widgets.pane import Pane, button, percent, row, table_html, text_html
from qdq_widgets.replacing import replace_children

_HINT = (
    "Not measured yet for this plan. Its file and the float file are written to a temporary folder and run in turns in "
    "ONNX Runtime, on the processor of this computer; ONNX Runtime's profiler tells the time of every kernel."
)


class SpeedPane(Pane):
    """Runs `measure_speed` and shows the times of the present plan."""

    title = "Speed"
    events = ("speed", "plan", "job")

    def build(self) -> Sequence[Any]:
        """Make the widgets."""
        self.threads = widgets.BoundedIntText(
            value=0, min=0, max=1024, description="Threads", layout={"width": "160px"}
        )
        self.threads.tooltip = "Threads within a kernel; 0 for ONNX Runtime's own choice"
        self.batch = widgets.BoundedIntText(
            value=1, min=1, max=4096, description="Batch size", layout={"width": "170px"}
        )
        self.rounds = widgets.BoundedIntText(value=12, min=1, max=1000, description="Rounds", layout={"width": "150px"})
        self.rounds.tooltip = "How many turns each file has; more rounds, narrower interval"
        self.run = button("Measure the speed", self._run, icon="tachometer", style="primary")
        self.stop = button("Stop", self.bench.jobs.stop, icon="stop", style="danger", tooltip="Stop after this round")
        self.color = button("Colour the graph", self._color, icon="paint-brush")
        self.leave = button("Leave in float what loses", self._leave, icon="minus-circle")
        self.leave.tooltip = "One step that can be undone; measure again behind it"
        self._losing: list[str] = []
        self._note = widgets.HTML()
        self._figures = widgets.VBox()
        self._drawn: Any = None
        return [
            row(self.threads, self.batch, self.rounds),
            row(self.run, self.stop, self.color, self.leave),
            self.errors.widget,
            self._note,
            self._figures,
        ]

    def refresh(self) -> None:
        """Show the times of the present plan."""
        busy = self.bench.jobs.current is not None
        self.run.disabled, self.stop.disabled = busy, not busy
        report = self.bench.latency
        self.color.layout.display = "none" if report is None else ""
        if report is None:
            self._note.value, self._losing = text_html(_HINT, "qdq-muted"), []
            self._drawn = None
            replace_children(self._figures, ())
        elif self._drawn is not report:
            self._drawn = report
            losses, edges = losses_of(self.bench.plan, report)
            self._losing = [layer for island in losses for layer in island.layers]
            self._note.value = note_html(report) + losses_html(losses) + edges_html(edges)
            tables = widgets.HTML(latency_tables(report))
            replace_children(self._figures, (fitted(live_figure(qdq.latency_figure(report))), tables))
        self.leave.layout.display = "" if self._losing else "none"

    @shows_errors
    def _run(self) -> None:
        threads, rounds, batch = self.threads.value or None, self.rounds.value, self.batch.value
        self.start(lambda: self.bench.measure_speed(threads=threads, rounds=rounds, batch=batch))

    @shows_errors
    def _leave(self) -> None:
        self.bench.leave_in_float(self._losing)

    @shows_errors
    def _color(self) -> None:
        self.bench.color_by(LATENCY)


def note_html(report: Any) -> str:
    """Return the totals of a `LatencyReport` with a baseline in two sentences, and its remarks, as HTML."""
    low, high = report.speedup_interval
    threads = "its own number of threads" if report.threads is None else f"threads: {report.threads}"
    said = (
        f"{report.total_ms:.3f} ms per run beside {report.baseline.total_ms:.3f} ms of the float file: "
        f"{report.speedup:.2f} times as fast, {report.interval_name} {low:.2f} to {high:.2f}; noise (the same file "
        f"measured twice): {report.noise:.1%}. {report.engine} {report.runtime}, {threads}, batch {report.batch}, "
        f"{report.runs} runs."
    )
    return text_html(said, "qdq-heading") + "".join(map(text_html, report.remarks))


def losses_of(plan: Any, report: Any) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """Return the islands in INT8 that cost more time than they save, and the edges that do so by an estimate.

    Both are empty for targets other than the measured runtime. The report is that of the plan's file, with a baseline.
    """
    if plan.target != "onnxruntime":
        return (), ()
    found = qdq.explain(plan, plan.target_object, latency=report)
    return found.losses, found.edge_losses


def losses_html(losses: Sequence[Any]) -> str:
    """Return `Island` objects that cost more time than they save, as HTML."""
    if not losses:
        return ""
    rows = [
        (" + ".join(one.layers), f"{one.kernels_ms:+.4f}", f"{-one.conversions_ms:+.4f}", f"{one.gain_ms:+.4f}")
        for one in losses
    ]
    head = ("layers", "their kernels save, ms", "conversions, ms", "in all, ms")
    return text_html("These cost more than they save:") + table_html(head, rows)


def edges_html(edges: Sequence[Any]) -> str:
    """Return `IslandEdge` objects, whose layers may be faster in float, as HTML."""
    if not edges:
        return ""
    rows = [
        (" + ".join(one.layers), f"{one.ms:.4f}", f"{one.baseline_ms:.4f}", f"{one.moved_ms - one.conversions_ms:+.4f}")
        for one in edges
    ]
    head = ("layers", "INT8, ms", "float, ms", "conversions in float, ms, estimated")
    said = (
        "These may be faster in float, changes of layout not counted; switch them off in the graph and measure again, "
        "or search for the least time:"
    )
    return text_html(said) + table_html(head, rows)


def latency_tables(report: Any) -> str:
    """Return the times of a `LatencyReport` with a baseline as folded tables, as HTML."""
    gains = [
        (" + ".join(gain.layers), f"{gain.baseline_ms:.4f}", f"{gain.ms:.4f}", f"{gain.gain_ms:+.4f}")
        for gain in report.gains
    ]
    layers = [
        (entry.layer, f"{entry.ms:.4f}", percent(entry.share), ", ".join(entry.kernels), ", ".join(entry.fused))
        for entry in report.ranked()
    ]
    others = [(entry.what, entry.name, f"{entry.ms:.4f}", percent(entry.share)) for entry in report.others]
    parts = (
        ("What INT8 gains, layer by layer", ("layers", "float, ms", "INT8, ms", "gain, ms"), gains),
        ("The kernels of every layer", ("layer", "ms", "of the run", "kernels", "fused with it"), layers),
        ("What belongs to no layer", ("what", "kernel", "ms", "of the run"), others),
    )
    return "".join(
        f"<details><summary>{title}</summary>{table_html(head, rows)}</details>" for title, head, rows in parts
    )
