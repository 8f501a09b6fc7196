"""The field for a file that long work resumes from, and fields whose values are saved with the bench."""

from __future__ import annotations

import pathlib
from collections.abc import Callable, Mapping
from typing import Any

import ipywidgets as widgets

from qdq_widgets.pane import Pane, text_html


class RememberedFields:
    """Fields whose values are saved and restored with the bench.

    Args:
        pane: Their pane; it remembers the names.
        fields: The fields by name.
    """

    def __init__(self, pane: Pane, fields: Mapping[str, Any]) -> None:
        self._pane, self._fields = pane, dict(fields)
        self._known: dict[str, Any] = {name: field.value for name, field in self._fields.items()}
        for name, field in self._fields.items():
            field.observe(lambda change, name=name: pane.remember(**{name: change["new"]}), "value")
        self.refresh()

    def refresh(self) -> None:
        """Show values that others have changed, such as by loading a bench."""
        found = self._pane.remembered
        for name, field in self._fields.items():
            # Not compared with the field, which has what is typed before the pane remembers it.
            if found[name] != self._known[name]:
                self._known[name] = found[name]
                field.value = found[name]


class CheckpointField:
    """A text field for a file to resume from; empty for none.

    Args:
        pane: The pane; it remembers the field's value.
        name: The name by which it does.
        suffix: The usual suffix of the file.
        of: Says in words what an existing file means, given its path.
    """

    def __init__(self, pane: Pane, name: str, suffix: str, of: Callable[[pathlib.Path], str] | None = None) -> None:
        self.field = widgets.Text(placeholder=f"checkpoint file, {suffix} (optional)", layout={"width": "240px"})
        self.field.tooltip = "A file to go on from, also after a restart of the kernel; empty for none"
        self.note = widgets.HTML()
        self._of, self._is_offered = _held if of is None else of, True
        self._remembered = RememberedFields(pane, {name: self.field})
        self.field.observe(lambda _: self._show(), "value")
        self._show()

    @property
    def given(self) -> dict[str, str]:
        """The argument `checkpoint` of a method of the bench; empty without a file."""
        path = self.field.value.strip()
        return {"checkpoint": path} if path else {}

    def refresh(self) -> None:
        """Show the restored path, and what its file holds."""
        self._remembered.refresh()
        self._show()

    def offer(self, *, on: bool) -> None:
        """Show the note on the file, or hide it where the field is not shown."""
        self._is_offered = on
        self._show()

    def _show(self) -> None:
        path = self.field.value.strip()
        try:
            text = self._of(pathlib.Path(path)) if path and pathlib.Path(path).is_file() else ""
        except (OSError, ValueError):  # no path of a file: the work itself says so
            text = ""
        self.note.value = text_html(text, "qdq-muted") if text else ""
        self.note.layout.display = "" if text and self._is_offered else "none"


def _held(path: pathlib.Path) -> str:
    return (
        f"{path.name} is there: what it holds is not computed again if plan, weights, data and settings are the same. "
        "To begin anew, give another file."
    )
