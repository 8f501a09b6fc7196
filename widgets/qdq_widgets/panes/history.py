"""The history pane: all steps with their changes of the plan; a click goes to a step."""

from __future__ import annotations

import html
from collections.abc import Sequence
from typing import Any

import ipywidgets as widgets

from qdq_widgets.callback_errors import shows_errors
from qdq_widgets.pane import Pane, row, table_html, text_html
from qdq_widgets.state import diff_rows

SHOWN_STEPS = 200
SHOWN_CHANGES = 60


class HistoryPane(Pane):
    """Lists the steps; a click on one goes there."""

    title = "History"

    def build(self) -> Sequence[Any]:
        """Make the widgets."""
        self._showing = False
        self.steps = widgets.Select(rows=9, layout={"width": "auto"})
        self.steps.tooltip = "Steps of the history"
        self.steps.observe(self._go, "value")
        self._diff = widgets.HTML()
        return [row(widgets.HTML(text_html("Click a step to go there.", "qdq-muted"))), self.steps, self._diff]

    def refresh(self) -> None:
        """Show the steps, and the changes of the present one."""
        history = self.bench.history
        first = max(0, min(len(history) - SHOWN_STEPS, history.position - SHOWN_STEPS // 2))
        steps = list(enumerate(history.steps))[first : first + SHOWN_STEPS]
        self._showing = True  # not the user's click
        try:
            changes = [f"  ({step.change})" if i else "" for i, step in steps]
            lines = [f"{i}  {step.label}{change}" for (i, step), change in zip(steps, changes, strict=True)]
            self.steps.options = [(line, i) for line, (i, _) in zip(lines, steps, strict=True)]
            self.steps.value = history.position
        finally:
            self._showing = False
        step, diff = history.present, history.present.diff
        if diff is None:
            self._diff.value = text_html("The state that the bench started from.", "qdq-muted")
            return
        rows = diff_rows(diff)
        head = f'<div class="qdq-heading">{html.escape(step.label)}: {html.escape(step.change)}</div>'
        columns = ("", "layer", "site", "grid", "why")
        self._diff.value = head + table_html(columns, rows[:SHOWN_CHANGES], empty="The plan stayed as it was.")

    @shows_errors
    def _go(self, change: Any) -> None:
        if not self._showing and change["new"] is not None and change["new"] != self.bench.history.position:
            self.bench.go_to(change["new"])
