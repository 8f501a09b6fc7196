"""The target pane: every layer that does not run in INT8 on the target, with the reason and the fix."""

from __future__ import annotations

import html
from collections.abc import Sequence
from typing import Any

import ipywidgets as widgets

from qdq_widgets.callback_errors import shows_errors
from qdq_widgets.pane import Pane, button, percent, row, text_html
from qdq_widgets.replacing import Rows
from qdq_widgets.targets import layer_counts, reason_text, shown_status, target_options, target_title, verdicts

SHOWN_LAYERS = 60
_MODES = {
    "full: defaults, spec and cases": "full",
    "partial: only spec and cases": "partial",
}


class RuntimePane(Pane):
    """Sets target and mode, shows the statuses of the layers, and applies fixes."""

    title = "Target"

    def build(self) -> Sequence[Any]:
        """Make the widgets."""
        self.target = widgets.Dropdown(options=target_options(), layout={"width": "290px"})
        self.target.tooltip = "The inference runtime that the plan is for"
        self.target.observe(self._set_target, "value")
        self.mode = widgets.Dropdown(options=list(_MODES.items()))
        self.mode.tooltip = "Mode: what is quantized without an entry in the spec"
        self.mode.observe(self._set_mode, "value")
        self.all_layers = widgets.Checkbox(description="also layers in INT8", indent=False, value=False)
        self.all_layers.observe(lambda _: self.refresh(), "value")
        self.fix_all = button("Fix all", self._fix_all, icon="magic", style="success")
        self._counts = widgets.HTML()
        self._list = widgets.VBox(layout={"max_height": "330px", "overflow": "auto"})
        self._list.add_class("qdq-rows")
        self.rows = Rows(self._list, self._make_row, self._fill_row)
        self.rest = widgets.HTML()
        return [row(self.target, self.mode), self._counts, row(self.fix_all, self.all_layers), self._list, self.rest]

    def refresh(self) -> None:
        """Show the explanation of the present plan."""
        state = self.bench.state
        # Before the pickers are set: their observers compare with it, to pass over changes that are not the user's.
        self._shown = (state.target, state.mode)
        self.target.value, self.mode.value = self._shown
        explanation, unknown = verdicts(self.bench)
        self._counts.value = "" if unknown else _counts_html(self.bench.graph, explanation)
        fixable = sum(bool(entry.fix) for entry in explanation.layers)
        self.fix_all.layout.display = "" if fixable > 1 else "none"
        self.fix_all.description = f"Fix all {fixable}"
        self.fix_all.tooltip = "Quantize what these layers lack to run in INT8; one step of the history"
        layers = [e for e in explanation.layers if self.all_layers.value or e.status != "int8" or e.fix]
        self.rows.show(layers[:SHOWN_LAYERS])
        hidden = len(layers) - SHOWN_LAYERS
        none = "" if layers else unknown or "Every layer runs in INT8."
        self.rest.value = text_html(f"{hidden} more layers" if hidden > 0 else none, "qdq-muted")

    def _make_row(self, number: int) -> Any:
        made = button("Fix", lambda: self._fix(self.rows.items[number].layer), icon="magic")
        made.tooltip, made.layout.flex = "Make this layer run in INT8", "0 0 auto"
        return widgets.HBox([made, widgets.HTML()], layout={"align_items": "center", "grid_gap": "8px"})

    @staticmethod
    def _fill_row(shown: Any, entry: Any) -> None:
        made, text = shown.children
        status = html.escape(shown_status(entry))
        made.layout.display = "" if entry.fix else "none"
        no_way = " <span class='qdq-muted'>No placement changes this.</span>"
        text.value = (
            f'<span class="qdq-chip qdq-{status}">{status}</span> '
            f"<b>{html.escape(entry.layer)}</b> <span class='qdq-muted'>{html.escape(entry.class_name)}</span><br>"
            f"{html.escape(reason_text(entry))} <span class='qdq-muted'>[{html.escape(entry.rule)}]</span>"
            f"{'' if entry.fix or entry.advice or entry.status == 'int8' else no_way}"
        )

    @shows_errors
    def _set_target(self, change: Any) -> None:
        if change["new"] != self._shown[0]:
            try:
                self.bench.set_target(change["new"])
            finally:
                # After a refusal the picker still shows what was refused.
                self.target.value = self.bench.state.target

    @shows_errors
    def _set_mode(self, change: Any) -> None:
        if change["new"] != self._shown[1]:
            try:
                self.bench.set_mode(change["new"])
            finally:
                self.mode.value = self.bench.state.mode

    @shows_errors
    def _fix(self, layer: str) -> None:
        self.bench.apply_fix(layer)

    @shows_errors
    def _fix_all(self) -> None:
        self.bench.apply_fixes()


def _counts_html(graph: Any, explanation: Any) -> str:
    """Return layers by status, the share of multiplications in INT8, and that of weight bytes stored as integers."""
    shares = explanation.coverage
    return (
        f"{html.escape(target_title(explanation.target))}: {layer_counts(graph, explanation)}. In INT8 "
        f"<b>{percent(shares['macs'])}</b> of the multiplications, weights stored as integers: "
        f"<b>{percent(shares['bytes'])}</b> of their bytes"
    )
