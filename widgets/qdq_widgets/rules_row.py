"""The line below the bar for the rules of the graph's colours."""

from __future__ import annotations

from typing import Any

import ipywidgets as widgets

from qdq_widgets.callback_errors import ErrorBox, shows_errors
from qdq_widgets.pane import button, row
from qdq_widgets.style_rules import NAMES, checked_rules, rules_from_text, rules_text

_EXAMPLE = "class:*conv2d = blue; w=4 = orange; block?_* not int8 = #c62828"


class RulesRow:
    """A field of rules, shown while the graph is coloured by rules.

    Args:
        bench: The `Workbench`.
    """

    def __init__(self, bench: Any) -> None:
        self._bench = bench
        self.errors = ErrorBox()
        self.field = widgets.Text(
            placeholder=_EXAMPLE, description="Rules", continuous_update=False, layout={"width": "min(680px, 100%)"}
        )
        self.field.tooltip = f"A query, = and a colour: #rrggbb, or {', '.join(NAMES)}; the first that fits decides"
        self.field.observe(lambda _: self._apply(), "value")
        apply = button("Colour", self._apply, icon="paint-brush", tooltip="Colour the graph by these rules")
        self.widget = widgets.VBox([row(self.field, apply), self.errors.widget])
        self.widget.add_class("qdq-bar")
        self.refresh()

    def refresh(self) -> None:
        """Show the present rules."""
        is_used = self._bench.coloring == "rules"
        self.widget.layout.display = "" if is_used else "none"
        if is_used and self._bench.rules:
            self.field.value = rules_text(self._bench.rules)

    @shows_errors
    def _apply(self) -> None:
        rules = checked_rules(rules_from_text(self.field.value))
        if rules != self._bench.rules:  # equal after `refresh`, and for a click after the Enter key
            self._bench.color_rules(rules)
