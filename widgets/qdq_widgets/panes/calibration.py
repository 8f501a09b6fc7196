"""The calibration pane: choose a method, run it, and look at the ranges."""

from __future__ import annotations

from collections.abc import Sequence
from types import MappingProxyType
from typing import Any

import ipywidgets as widgets

import qdq_workbench as qdq
from qdq_widgets.callback_errors import shows_errors
from qdq_widgets.checkpoint_field import CheckpointField
from qdq_widgets.figures.live import fitted, live_figure
from qdq_widgets.figures.ranges import range_rows, ranges_figure
from qdq_widgets.pane import Pane, button, row, table_html, text_html
from qdq_widgets.replacing import replace_children

_METHODS: dict[str, str] = {
    "minmax": "min-max: all values",
    "percentile": "percentile: most values",
    "moving_average": "moving average of batches",
    "mse": "least squared error (mse)",
    "mae": "least absolute error (mae)",
    "lp": "least p-norm error (lp)",
    "kl": "least divergence (kl)",
    "entropy": "entropy (ONNX Runtime)",
    "power_of_two": "min-max, power of two",
}


class CalibrationPane(Pane):
    """Runs `calibrate` and shows the ranges."""

    title = "Calibration"
    events = ("plan", "calibration", "job")
    remembers = MappingProxyType({"checkpoint": ""})

    def build(self) -> Sequence[Any]:
        """Make the widgets."""
        self.method = widgets.Dropdown(options=_methods(), description="Method", layout={"width": "290px"})
        self.percentile = widgets.BoundedFloatText(
            value=99.99, min=50.01, max=100.0, step=0.01, description="Percentile", layout={"width": "190px"}
        )
        self.rounded = widgets.Checkbox(description="powers of two", indent=False, layout={"width": "auto"})
        self.rounded.tooltip = "Round the ends of the ranges up to powers of two"
        self.steps = widgets.BoundedIntText(
            value=0,
            min=0,
            max=10**6,
            description="Batches (0: all)",
            layout={"width": "200px"},
            style={"description_width": "initial"},
        )
        self.steps.tooltip = "How many batches to read; 0 for all, or for the first 16 of the training data"
        self.batch = widgets.BoundedIntText(
            value=32, min=1, max=4096, description="Batch size", layout={"width": "170px"}
        )
        self.method.observe(lambda _: self._show_settings(), "value")
        self.run = button("Calibrate", self._run, icon="play", style="primary")
        self._summary = widgets.HTML()
        self._figures = widgets.VBox()
        self._drawn: tuple[Any, Any] | None = None
        self._show_settings()
        self.checkpoint = CheckpointField(self, "checkpoint", ".json")
        settings = (self.method, self.percentile, self.steps, self.batch, self.rounded, self.checkpoint.field)
        return [row(*settings, self.run), self.checkpoint.note, self.errors.widget, self._summary, self._figures]

    def refresh(self) -> None:
        """Show the last calibration under the present plan."""
        self.run.disabled = self.bench.jobs.current is not None
        if not self.run.disabled:
            self.checkpoint.refresh()
        result = self.bench.calibration
        if result is None:
            text = (
                "Not calibrated yet: activation ranges are unknown. Calibrate reads the calibration data, or the first "
                "batches of the training data, and then scores the model where there are validation data."
            )
            self._summary.value = text_html(text, "qdq-muted")
            replace_children(self._figures, ())
            self._drawn = None
            return
        # Every batch of a job refreshes the pane, and a new figure is sent whole.
        if self._drawn is not None and self._drawn[0] is result and self._drawn[1] is self.bench.plan:
            return
        self._drawn = result, self.bench.plan
        self._summary.value = text_html(
            f"{result.method} on {result.samples} samples in {result.batches} batches; {len(result.ranges)} tensors "
            "recorded, so that other plans and targets need no data."
        )
        rows = range_rows(result, self.bench.plan)
        self._draw(result, rows)

    def _draw(self, result: Any, rows: Any) -> None:
        table = widgets.HTML(
            "<details><summary>Ranges as a table</summary>"
            + table_html(("tensor", "lowest", "highest"), [(n, f"{low:.6g}", f"{high:.6g}") for n, low, high in rows])
            + "</details>"
        )
        replace_children(self._figures, (fitted(live_figure(ranges_figure(result, self.bench.plan))), table))

    def _show_settings(self) -> None:
        self.percentile.layout.display = "" if self.method.value == "percentile" else "none"

    @shows_errors
    def _run(self) -> None:
        settings: dict[str, Any] = {"percentile": self.percentile.value} if self.method.value == "percentile" else {}
        # The method of that name rounds already.
        if self.rounded.value and self.method.value != "power_of_two":
            settings["power_of_two"] = True
        settings.update(self.checkpoint.given)
        method, steps, batch = self.method.value, self.steps.value or None, self.batch.value
        self.start(lambda: self.bench.calibrate(method, steps=steps, batch_size=batch, **settings))


def _methods() -> list[tuple[str, str]]:
    """Return texts and names of the library's methods; methods without a text here are shown by name."""
    known: list[str] = qdq.calibration_methods()
    ordered = [name for name in _METHODS if name in known] + [name for name in known if name not in _METHODS]
    return [(_METHODS.get(name, name), name) for name in ordered]
