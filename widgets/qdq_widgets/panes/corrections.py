"""The pane of corrections without labels after calibration: which of them apply, and their gains."""

from __future__ import annotations

import html
import math
from collections.abc import Sequence
from types import MappingProxyType
from typing import Any

import ipywidgets as widgets

import qdq_workbench as qdq
from qdq_widgets.callback_errors import shows_errors
from qdq_widgets.checkpoint_field import CheckpointField
from qdq_widgets.corrections import BY_NAME, Applied, Setting
from qdq_widgets.errors import BenchError
from qdq_widgets.pane import Pane, button, row, table_html, text_html
from qdq_widgets.replacing import close_all

_HINT = (
    "Corrections change the weights behind calibration, without labels and in this order. Each is one undoable step; "
    "where there are validation data it is scored. Calibrating again starts from the float model."
)
_ALONE = (
    "Weights alone are integers and activations stay in float: for large Dense layers, attention and tables. It "
    "replaces the plan by one undoable step; calibrate, then GPTQ rounds such weights better."
)
_BLOCKS = (("blocks of 32", 32), ("blocks of 64", 64), ("blocks of 128", 128), ("an output channel", None))
_FIRST = "learn_rounding"


class CorrectionsPane(Pane):
    """Runs `correct`, and shows for every correction whether it applies to the present plan."""

    title = "Corrections"
    events = ("plan", "calibration", "stage", "curves", "job")
    remembers = MappingProxyType({"checkpoint": ""})

    def build(self) -> Sequence[Any]:
        """Make the widgets."""
        self.picker = widgets.Dropdown(
            options=[(correction.title, name) for name, correction in BY_NAME.items()],
            value=_FIRST,
            description="Correction",
            layout={"width": "420px"},
        )
        self.picker.observe(lambda _: self._show_choice(), "value")
        self.fields = {
            name: {setting.name: _field(setting) for setting in correction.settings if not setting.rare}
            for name, correction in BY_NAME.items()
        }
        self.checkpoint = CheckpointField(self, "checkpoint", ".npz")
        self.run = button("Correct", self._run, icon="magic", style="primary")
        self.stop = button(
            "Stop", self.bench.jobs.stop, icon="stop", style="danger", tooltip="The weights stay as before"
        )
        self._settings = row()
        self._about, self._done, self._offers = widgets.HTML(), widgets.HTML(), widgets.HTML()
        self._fresh = False
        return [
            widgets.HTML(text_html(_HINT, "qdq-muted")),
            row(self.picker, self.run, self.stop),
            self._settings,
            self.checkpoint.note,
            self.errors.widget,
            self._about,
            self._done,
            self._offers,
            *self._weights_alone(),
        ]

    def refresh(self) -> None:
        """Show the corrections that apply, and the applied ones with their gains."""
        busy = self.bench.jobs.current is not None
        self.stop.disabled = not busy
        self.alone.disabled = busy or bool(self._no_weights)
        if busy and self._fresh:  # progress alone
            self.run.disabled = True
            return
        self._fresh = True
        self.checkpoint.refresh()
        self._why_not = {offer.name: offer.why_not for offer in self.bench.corrections.offers}
        applied = self.bench.corrections.applied
        done = [each.name for each in applied]
        rows = [
            (offer.title, offer.purpose, "done" if offer.name in done else offer.why_not or "applies")
            for offer in self.bench.corrections.offers
        ]
        table = table_html(("correction", "what it does", "for the present plan"), rows)
        self._offers.value = f"<details open><summary>All corrections, in their order</summary>{table}</details>"
        self._done.value = applied_html(applied)
        self._show_choice()

    def close(self) -> None:
        """Close the widgets, those of corrections that are not chosen too."""
        super().close()
        if self.is_built:
            for field in (self.checkpoint.field, *(one for fields in self.fields.values() for one in fields.values())):
                close_all(field)

    def _show_choice(self) -> None:
        name = self.picker.value
        fields = list(self.fields[name].values())
        has_file = name == _FIRST
        self._settings.children = (*fields, self.checkpoint.field) if has_file else fields
        self.checkpoint.offer(on=has_file)
        # A pane can be built, and its picker used, before the first `refresh`.
        reason = getattr(self, "_why_not", {}).get(name, "")
        self.run.disabled = bool(reason) or self.bench.jobs.current is not None
        going_on = self.bench.corrections.unfinished if name == _FIRST else ""
        done = any(each.name == name for each in self.bench.corrections.applied)
        note = text_html(f"Not here: {reason}", "qdq-warning") if reason else text_html(going_on, "qdq-muted")
        self._about.value = text_html(BY_NAME[name].purpose) + (text_html(reason, "qdq-muted") if done else note)

    def _weights_alone(self) -> list[Any]:
        """Return the widgets of `Workbench.weights_alone`."""
        self._no_weights = ""
        try:
            qdq.correction.weights_alone(self.bench.graph)
        except qdq.QDQError as error:
            self._no_weights = f"Not here: {error}"
        self.bits = widgets.BoundedIntText(value=4, min=2, max=8, description="Bits", layout={"width": "150px"})
        self.block = widgets.Dropdown(
            options=_BLOCKS,
            description="One scale for",
            layout={"width": "270px"},
            style={"description_width": "initial"},
        )
        self.zero_points = widgets.Checkbox(description="zero points", indent=False, layout={"width": "auto"})
        self.alone = button("Quantize weights alone", self._quantize_alone, icon="th")
        self.alone.disabled = bool(self._no_weights)
        return [
            widgets.HTML(
                text_html("Weights alone", "qdq-heading")
                + text_html(_ALONE, "qdq-muted")
                + (text_html(self._no_weights.partition(" Received: ")[0], "qdq-warning") if self._no_weights else "")
            ),
            row(self.bits, self.block, self.zero_points, self.alone),
        ]

    @shows_errors
    def _run(self) -> None:
        name = self.picker.value
        settings = {key: _value(key, field) for key, field in self.fields[name].items()}
        if name == _FIRST:
            settings.update(self.checkpoint.given)
        self.start(lambda: self.bench.correct(name, **settings))

    @shows_errors
    def _quantize_alone(self) -> None:
        self.bench.weights_alone(self.bits.value, self.block.value, symmetric=not self.zero_points.value)


def applied_html(applied: Sequence[Applied]) -> str:
    """Return the applied corrections with their gains, as HTML; empty if there are none."""
    if not applied:
        return ""
    metric = next((each.metric for each in applied if each.metric), "score")
    rows = [(each.correction.title, *_scores(each), each.report.splitlines()[0]) for each in applied]
    table = table_html(("done", f"{metric} before", "after", "difference", "what happened"), rows)
    reports = "".join(
        f"<details><summary>{html.escape(each.correction.title)}: unit by unit</summary>"
        f"<pre>{html.escape(each.report)}</pre></details>"
        for each in applied
        if len(each.report.splitlines()) > 1
    )
    return table + reports


def _scores(applied: Applied) -> tuple[str, str, str]:
    values = [
        None if scores is None else scores.metrics.get(applied.metric) for scores in (applied.before, applied.after)
    ]
    shown = ["not scored" if value is None else f"{value:.4f}" for value in values]
    return shown[0], shown[1], "" if applied.gain is None else f"{applied.gain:+.4f}"


def _field(setting: Setting) -> Any:
    """Return the widget of a setting."""
    about = {"description": setting.label, "style": {"description_width": "initial"}}
    if setting.choices:
        made: Any = widgets.Dropdown(options=setting.choices, value=setting.default, layout={"width": "170px"}, **about)
    elif isinstance(setting.default, bool):
        made = widgets.Checkbox(
            value=setting.default, description=setting.label, indent=False, layout={"width": "auto"}
        )
    elif isinstance(setting.default, int):
        made = widgets.BoundedIntText(
            value=setting.default, min=setting.least, max=10**6, layout={"width": "160px"}, **about
        )
    else:  # text, not a number field: browsers cut small numbers to the width of the field's step
        shown = "" if setting.default is None else f"{setting.default:g}"
        made = widgets.Text(value=shown, placeholder="by itself", layout={"width": "160px"}, **about)
    made.tooltip = setting.help
    return made


def _value(name: str, field: Any) -> Any:
    """Return the value of a field; None for an empty text, which leaves the choice to the correction."""
    if not isinstance(field, widgets.Text):
        return field.value
    text = field.value.strip().replace(",", ".")
    if not text:
        return None
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise BenchError(f"{name} is a number, or nothing. Received: {field.value!r}")
    return value
