"""The diagnosis pane: why the present plan is worse than the float model, the gains of fixes, and applying one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import ipywidgets as widgets

from qdq_widgets.callback_errors import shows_errors
from qdq_widgets.pane import Pane, button, percent, row, set_options, table_html, text_html

_HINT = (
    "Not diagnosed yet. Every input, weight and output is quantized by itself on the validation data, and what is seen "
    "is matched with known causes. Ranges come from the calibration."
)


class DiagnosisPane(Pane):
    """Runs `diagnose` and `try_fixes`, shows the causes, and applies a fix."""

    title = "Diagnosis"
    events = ("diagnosis", "job", "plan")

    def build(self) -> Sequence[Any]:
        """Make the widgets."""
        self.samples = widgets.BoundedIntText(
            value=256, min=1, max=10**6, description="Samples", layout={"width": "170px"}
        )
        self.run = button("Find the causes", self._run, icon="stethoscope", style="primary")
        self.try_all = button(
            "Measure the fixes", self._try, icon="flask", tooltip="Tries every fix on a copy of the model"
        )
        self.stop = button("Stop", self.bench.jobs.stop, icon="stop", style="danger", tooltip="Stop after this site")
        self.cause = widgets.Dropdown(options=(), description="Cause", layout={"width": "420px"})
        self.show = button("Show the layer", self._show, icon="crosshairs")
        self.use = button(
            "Use its fix", self._use, icon="check", tooltip="One undoable step, where the fix changes the plan"
        )
        self._actions = row(self.cause, self.show, self.use)
        self._note = widgets.HTML()
        self._table = widgets.HTML()
        return [
            row(self.samples, self.run, self.try_all, self.stop),
            self.errors.widget,
            self._note,
            self._actions,
            self._table,
        ]

    def refresh(self) -> None:
        """Show the last diagnosis."""
        busy, found = self.bench.jobs.current is not None, self.bench.diagnosis
        self.run.disabled, self.stop.disabled = busy, not busy
        has_causes = found is not None and bool(found.causes)
        self.try_all.disabled = self.use.disabled = busy or not has_causes
        self._actions.layout.display = "" if has_causes else "none"
        if found is None:
            self._note.value, self._table.value = text_html(_HINT, "qdq-muted"), ""
            return
        titles = [f"{place}. {cause.title}, {cause.layer}" for place, cause in enumerate(found.causes, start=1)]
        set_options(self.cause, titles)  # options alone choose nothing: the picker would look empty
        changed = "" if found.patient.q_model.plan == self.bench.plan else " The plan has changed since."
        self._note.value = "".join(map(text_html, [*found.summary().splitlines()[1:3], changed.strip()]))
        self._table.value = causes_table(found)

    def _chosen(self) -> int:
        return int(self.cause.index)

    @shows_errors
    def _run(self) -> None:
        samples = self.samples.value
        self.start(lambda: self.bench.diagnose(samples=samples))

    @shows_errors
    def _try(self) -> None:
        self.start(self.bench.try_fixes)

    @shows_errors
    def _show(self) -> None:
        found: Any = self.bench.diagnosis
        self.bench.view.graph.select(found.causes[self._chosen()].layer)

    @shows_errors
    def _use(self) -> None:
        self.bench.apply_cause(self._chosen())


def causes_table(found: Any) -> str:
    """Return the causes of a `Diagnosis` as a table, as HTML."""
    rows = [
        (
            str(place),
            cause.title,
            cause.layer,
            "beside it" if cause.changes_function else percent(cause.share),
            cause.evidence,
            cause.fix,
            "" if cause.gain is None else f"{cause.gain:+.4g} {found.unit}".strip(),
        )
        for place, cause in enumerate(found.causes, start=1)
    ]
    return table_html(("", "cause", "layer", "of the error", "seen", "fix", f"gain, {found.metric}"), rows)
