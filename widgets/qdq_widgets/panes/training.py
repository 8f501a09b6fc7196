"""The training pane: start and stop fine-tuning, with FP32, PTQ and every run in one live figure."""

from __future__ import annotations

import math
import pathlib
from collections.abc import Sequence
from types import MappingProxyType
from typing import Any

import ipywidgets as widgets

import qdq_workbench as qdq
from qdq_widgets.callback_errors import shows_errors
from qdq_widgets.checkpoint_field import CheckpointField, RememberedFields
from qdq_widgets.curves import Curves, Scores
from qdq_widgets.errors import BenchError
from qdq_widgets.figures.curves import curve_traces, curves_figure, metric_axis
from qdq_widgets.figures.live import fitted, live_figure
from qdq_widgets.pane import Pane, button, row, table_html, text_html
from qdq_widgets.replacing import replace_children


class TrainingPane(Pane):
    """Runs `fine_tune` and compares the runs."""

    title = "Training"
    events = ("curves", "job", "stage", "plan")
    remembers = MappingProxyType({"epochs": 3, "rate": "", "batch": 32, "checkpoint": ""})

    def build(self) -> Sequence[Any]:
        """Make the widgets."""
        self.epochs = widgets.BoundedIntText(value=3, min=1, max=1000, description="Epochs", layout={"width": "150px"})
        # Text, not a number field: browsers cut small numbers such as 0.0001 to the width of the field's step.
        self.rate = widgets.Text(placeholder=self._usual_rate(), description="Rate", layout={"width": "190px"})
        self.rate.tooltip = "Learning rate, such as 1e-4; empty for the optimizer's own"
        self.batch = widgets.BoundedIntText(
            value=32, min=1, max=4096, description="Batch size", layout={"width": "170px"}
        )
        self.name = widgets.Text(placeholder="name of the run", layout={"width": "150px"})
        self.resume = widgets.Checkbox(description="go on from the last run", indent=False, layout={"width": "auto"})
        self.checkpoint = CheckpointField(self, "checkpoint", ".npz", self._kept)
        # A checkpoint belongs to the rate and the batch size: without them a loaded bench could not go on.
        self._fields = RememberedFields(self, {"epochs": self.epochs, "rate": self.rate, "batch": self.batch})
        self.epochs.observe(lambda _: self.checkpoint.refresh(), "value")
        self.run = button("Fine-tune", self._run, icon="play", style="primary")
        self.score = button("Score only", self._score, icon="tachometer", tooltip="Score FP32 and PTQ")
        self.stop = button("Stop", self.bench.jobs.stop, icon="stop", style="danger", tooltip="Stop after this step")
        self.figure: Any = None
        self._figure_box = widgets.VBox()
        self._table = widgets.HTML()
        return [
            row(self.epochs, self.rate, self.batch, self.name, self.resume, self.checkpoint.field),
            row(self.run, self.score, self.stop),
            self.checkpoint.note,
            self.errors.widget,
            self._figure_box,
            self._table,
        ]

    def refresh(self) -> None:
        """Show the curves so far."""
        busy = self.bench.jobs.current is not None
        self.run.disabled = self.score.disabled = busy
        self.stop.disabled = not busy
        if not busy:
            self._fields.refresh()
            self.checkpoint.refresh()
        curves = self.bench.curves
        if self._has_other_lines(curves):
            self.figure = None  # runs were removed, such as by loading a bench: lines can grow only
            replace_children(self._figure_box, ())
        if self.figure is None and (curves.fp32 or curves.ptq or curves.runs):
            self.figure = live_figure(curves_figure(curves, self.bench.scored_samples))
            replace_children(self._figure_box, (fitted(self.figure),))
        elif self.figure is not None:
            with self.figure.changes:
                self._grow(curves)
        note = text_html(self.bench.stage_note, "qdq-muted") if self.bench.stage_note else ""
        self._table.value = note + scores_table(curves, other_plan(self.bench))

    def _has_other_lines(self, curves: Curves) -> bool:
        """Return whether the figure has lines that are not among those of the curves."""
        if self.figure is None:
            return False
        groups = [trace["legendgroup"] for trace in curve_traces(curves)]
        drawn = [line.legendgroup for line in self.figure.data]
        return drawn != groups[: len(drawn)]

    def _grow(self, curves: Curves) -> None:
        """Update the figure: one message for all changed lines, then the new lines."""
        traces = curve_traces(curves)
        with self.figure.batch_update():
            for line, trace in zip(self.figure.data, traces, strict=False):
                drawn = (list(line.x or ()), list(line.y or ()), line.name)
                if drawn != (trace["x"], trace["y"], trace["name"]):
                    line.x, line.y, line.name = trace["x"], trace["y"], trace["name"]
            self.figure.update_yaxes(**metric_axis(curves, self.bench.scored_samples), row=1, col=1)
        for trace in traces[len(self.figure.data) :]:
            arguments = {key: value for key, value in trace.items() if key != "column"}
            self.figure.add_scatter(**arguments, row=1, col=trace["column"])

    @shows_errors
    def _run(self) -> None:
        epochs, rate, batch = self.epochs.value, parse_rate(self.rate.value), self.batch.value
        name, resume = self.name.value.strip() or None, self.resume.value
        how = {"name": name, "resume": resume, **self.checkpoint.given}
        self.start(lambda: self.bench.fine_tune(epochs, learning_rate=rate, batch_size=batch, **how))

    def _kept(self, path: pathlib.Path) -> str:
        return kept_training(path, self.epochs.value)

    def _usual_rate(self) -> str:
        rate = self.bench.usual_rate
        return "optimizer's own" if rate is None else f"{rate:g}"

    @shows_errors
    def _score(self) -> None:
        batch = self.batch.value
        self.start(lambda: self.bench.evaluate(batch_size=batch))


def parse_rate(text: str) -> float | None:
    """Return the learning rate in a text such as "1e-4"; None for the optimizer's own, if the text is empty.

    Raises:
        BenchError: If the text is not a number greater than 0.

    Example:
        >>> parse_rate("1e-4"), parse_rate(" ")
        (0.0001, None)
    """
    if not text.strip():
        return None
    try:
        rate = float(text.replace(",", "."))
    except ValueError:
        rate = math.nan
    if not (math.isfinite(rate) and rate > 0):
        raise BenchError(f"The rate is a number greater than 0, such as 1e-4, or nothing. Received: {text!r}")
    return rate


def kept_training(path: pathlib.Path, epochs: int) -> str:
    """Return in words what the checkpoint of a training means for a training of some epochs."""
    anew = "To train anew, give another file."
    try:
        notes = qdq.files.TrainingCheckpoint.notes_of(path)
    except qdq.errors.CheckpointError:
        return f"{path.name} is no checkpoint of a training, or it is damaged. {anew}"
    done = (notes or {}).get("epochs")
    if not isinstance(done, int):
        return f"{path.name} was not written by a bench. {anew}"
    if done >= epochs:
        return f"{path.name} holds all {done} epochs of a training: Fine-tune restores its weights. {anew}"
    return (
        f"{path.name} holds {done} of {epochs} epochs: Fine-tune goes on after them, with the plan, weights, data, "
        f"rate and batch size of that training. {anew}"
    )


def other_plan(bench: Any) -> str:
    """Return the text about the plan of the PTQ scores: "another plan" if it is not the present one; else empty."""
    return "another plan" if bench.ptq_is_stale else ""


def scores_table(curves: Curves, ptq_plan: str = "") -> str:
    """Return the scores as a table, as HTML; `ptq_plan` is the text about the plan of the PTQ scores."""
    rows: list[tuple[str, str, str, str, str]] = []
    for name, scores, plan in (("FP32", curves.fp32, ""), ("PTQ (calibrated)", curves.ptq, ptq_plan)):
        if scores is not None:
            rows.append((name, *_numbers(scores, curves.metric), plan, ""))
    for run in curves.runs:
        numbers = _numbers(run.last, curves.metric) if run.last is not None else ("", "")
        rows.append((run.name, *numbers, f"{run.target}, {run.pairs} pairs", run.state))
    columns = ("model", curves.metric or "metric", "loss", "plan", "state")
    return table_html(
        columns,
        rows,
        empty="Nothing has been scored or trained yet. Fine-tuning starts from the calibrated ranges, or from those of "
        "its first batches, on the training data; the float model and the calibrated one are scored beside it, on the "
        "validation data.",
    )


def _numbers(scores: Scores, metric: str) -> tuple[str, str]:
    value = scores.metrics.get(metric)
    return ("" if value is None else f"{value:.4f}", f"{scores.loss:.4f}")
