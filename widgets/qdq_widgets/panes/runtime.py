"""What the target will make of the plan: every layer that does not run in INT8, why, and the fix."""

from __future__ import annotations

import html
from collections.abc import Sequence
from typing import Any

import ipywidgets as widgets

from qdq_widgets.callback_errors import shows_errors
from qdq_widgets.pane import Pane, button, row, text_html
from qdq_widgets.targets import target_options, target_title, verdicts

SHOWN_LAYERS = 60
_MODES = {
    "full: defaults, spec and cases": "full",
    "partial: only spec and cases": "partial",
}


class RuntimePane(Pane):
    """Picks target and mode, and explains the layers."""

    title = "Target"

    def build(self) -> Sequence[Any]:
        """Make the widgets."""
        self.target = widgets.Dropdown(options=target_options(), layout={"width": "290px"})
        self.target.observe(self._set_target, "value")
        self.mode = widgets.Dropdown(options=list(_MODES.items()))
        self.mode.observe(self._set_mode, "value")
        self.all_layers = widgets.Checkbox(description="also layers in INT8", indent=False, value=False)
        self.all_layers.observe(lambda _: self.refresh(), "value")
        self._counts = widgets.HTML()
        self._rows = widgets.VBox(layout={"max_height": "330px", "overflow": "auto"})
        return [row(self.target, self.mode), row(self._counts, self.all_layers), self._rows]

    def refresh(self) -> None:
        """Show the explanation of the present plan."""
        state = self.bench.state
        self._shown = (state.target, state.mode)
        self.target.value, self.mode.value = self._shown
        explanation, unknown = verdicts(self.bench)
        counts = ", ".join(f"<b>{count}</b> {status}" for status, count in explanation.counts.items())
        self._counts.value = f"{html.escape(target_title(explanation.target))}: {counts} layers"
        layers = [entry for entry in explanation.layers if self.all_layers.value or entry.status != "int8"]
        rows = [self._layer_row(entry) for entry in layers[:SHOWN_LAYERS]]
        if len(layers) > SHOWN_LAYERS:
            rows.append(widgets.HTML(f'<div class="qdq-muted">{len(layers) - SHOWN_LAYERS} more layers</div>'))
        self._rows.children = rows or [widgets.HTML(text_html(unknown or "Every layer runs in INT8.", "qdq-muted"))]

    def _layer_row(self, entry: Any) -> Any:
        text = widgets.HTML(
            f'<span class="qdq-chip qdq-{html.escape(entry.status)}">{html.escape(entry.status)}</span> '
            f"<b>{html.escape(entry.layer)}</b> <span class='qdq-muted'>{html.escape(entry.class_name)}</span><br>"
            f"{html.escape(entry.reason)} <span class='qdq-muted'>[{html.escape(entry.rule)}]</span>"
        )
        children = [text]
        if entry.fix:
            made = button("Fix", lambda: self._fix(entry.layer), icon="magic", tooltip="Make this layer run in INT8")
            made.layout.flex = "0 0 auto"
            children.insert(0, made)
        return widgets.HBox(children, layout={"align_items": "center", "grid_gap": "8px"})

    @shows_errors
    def _set_target(self, change: Any) -> None:
        if change["new"] != self._shown[0]:
            try:
                self.bench.set_target(change["new"])
            finally:
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
