"""The pane of insertion cases: a description of each, and the changes that it would make."""

from __future__ import annotations

import html
from collections.abc import Iterator, Sequence
from typing import Any

import ipywidgets as widgets

import qdq_workbench as qdq
from qdq_widgets.callback_errors import shows_errors
from qdq_widgets.pane import Pane, button, row, set_options, table_html, text_html
from qdq_widgets.replacing import Rows
from qdq_widgets.state import diff_rows

SHOWN_CHANGES = 60


class CasesPane(Pane):
    """Shows the library's cases and the user's own, applies and removes them."""

    title = "Cases"

    def build(self) -> Sequence[Any]:
        """Make the widgets."""
        self._choices: dict[str, Any] = {}
        self.picker = widgets.Dropdown(layout={"width": "260px"})
        self.picker.tooltip = "Insertion case"
        self.picker.observe(lambda _: self._preview(), "value")
        self.apply = button("Apply", self._apply, icon="check", style="primary")
        self.show = button(
            "Show in the graph", self._show, icon="eye", tooltip="Draw what it would change, before it is applied"
        )
        self._again = button("", self.refresh, icon="refresh", tooltip="Look for cases defined since")
        self._info = widgets.HTML()
        self.changes = widgets.HTML()
        self._applied = widgets.HBox(layout={"flex_flow": "row wrap", "grid_gap": "6px"})
        self.chips = Rows(self._applied, self._make_chip, self._fill_chip)
        self._none = widgets.HTML(text_html("No case is applied.", "qdq-muted"))
        return [
            row(self.picker, self.apply, self.show, self._again),
            self._info,
            self.changes,
            widgets.HTML('<div class="qdq-heading">Applied</div>'),
            self._none,
            self._applied,
        ]

    def refresh(self) -> None:
        """Offer all known cases, and show the applied ones."""
        self._choices = {case.name: case for case in known_cases(self.bench.state.cases)}
        set_options(self.picker, list(self._choices))
        names = [case.name for case in self.bench.state.cases]
        self.chips.show(names)
        self._none.layout.display = "none" if names else ""
        self._preview()

    def _make_chip(self, number: int) -> Any:
        return button("", lambda: self._remove(self.chips.items[number]), icon="times")

    @staticmethod
    def _fill_chip(chip: Any, name: str) -> None:
        chip.description, chip.tooltip = name, f"Take {name} away"

    @shows_errors
    def _preview(self) -> None:
        case = self._choices.get(self.picker.value)
        if case is None:
            return
        suited = case.for_target(qdq.get_target(self.bench.state.target))
        self._info.value = f"<p>{html.escape(suited.info())}</p>"
        self.changes.value = ""
        self.apply.disabled = self.show.disabled = False
        try:
            _, diff = self.bench.preview(self.bench.state_with_case(case))
        except qdq.errors.PlacementConflictError as conflict:  # nothing was clicked: no error
            self.apply.disabled = self.show.disabled = True
            self.changes.value = _conflict_html(case.name, conflict)
            return
        rows = diff_rows(diff)
        hidden = f" (the first {SHOWN_CHANGES} are shown)" if len(rows) > SHOWN_CHANGES else ""
        head = text_html(f"Against the present plan: {diff.counts}{hidden}", "qdq-heading")
        columns = ("", "layer", "site", "grid", "why")
        table = table_html(columns, rows[:SHOWN_CHANGES], empty="Nothing changes in the present plan.")
        self.changes.value = head + table

    @shows_errors
    def _show(self) -> None:
        case = self._choices.get(self.picker.value)
        if case is not None:
            self.bench.view.preview(self.bench.state_with_case(case))

    @shows_errors
    def _apply(self) -> None:
        self.bench.apply_case(self._choices[self.picker.value])

    @shows_errors
    def _remove(self, name: str) -> None:
        self.bench.remove_case(name)


def _conflict_html(name: str, conflict: Exception) -> str:
    """Return why a case does not fit beside those that are applied, as HTML."""
    text = html.escape(str(conflict).partition(" Received: ")[0])
    return (
        f'<div class="qdq-verdict qdq-partial"><b>{html.escape(name)} does not fit beside what is applied</b>'
        f"<div>{text}</div></div>"
    )


def known_cases(applied: Sequence[Any]) -> list[Any]:
    """Return one case per class: the applied one, else a new one of the library's or the user's class, sorted by name.

    The order does not depend on the applied cases: a dropdown sends the index of the choice, which the user may have
    made before the page got a new list.
    """
    found = {case.name: case for case in applied}
    for name in sorted(qdq.__all__):
        kind = getattr(qdq, name) if name.endswith("Case") else None
        if isinstance(kind, type) and kind is not qdq.CustomQDQInsertionCase and kind.__name__ not in found:
            found[kind.__name__] = kind()
    for kind in _users_classes(qdq.CustomQDQInsertionCase):
        if kind.__name__ not in found:
            case = _made(kind)
            if case is not None:
                found[kind.__name__] = case
    return sorted(found.values(), key=lambda case: case.name)


def _users_classes(kind: type) -> Iterator[type]:
    children: list[type] = kind.__subclasses__()
    for child in children:
        if child.__module__.partition(".")[0] != "qdq_workbench":
            yield child
        yield from _users_classes(child)


def _made(kind: type) -> Any:
    """Return a case of a class; None if it needs arguments or is abstract: see `wb.apply_case(MyCase(...))`."""
    try:
        return kind()
    except TypeError:
        return None
