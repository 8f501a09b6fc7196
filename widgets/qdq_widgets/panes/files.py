"""The pane for code and files: the bench as Python, as a folder, as an HTML report."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import ipywidgets as widgets

from qdq_widgets.callback_errors import shows_errors
from qdq_widgets.copy_button import CopyButton
from qdq_widgets.earlier import work_text
from qdq_widgets.folder_offer import FolderOffer
from qdq_widgets.pane import Pane, button, file_name, row, text_html


class FilesPane(Pane):
    """Shows the code, saves and loads the bench, writes the report."""

    title = "Code & files"
    events = ("plan", "calibration", "stage", "export")

    def build(self) -> Sequence[Any]:
        """Make the widgets."""
        self.what = widgets.ToggleButtons(
            options=[("The present plan", "plan"), ("Every step", "steps")], style={"button_width": "auto"}
        )
        self.what.tooltips = ["Plan, calibration, training and export of what is there now", "What was done, in order"]
        self.what.observe(lambda _: self._show_code(), "value")
        self.copy = CopyButton()
        self.code = widgets.Textarea(rows=10, layout={"width": "auto"}, disabled=False)
        self.code.tooltip = "Code"
        self.code.add_class("qdq-code")
        self.code.observe(lambda change: setattr(self.copy, "text", change["new"]), "value")
        name = file_name(self.bench.graph.name)
        self.folder = widgets.Text(value=f"{name}_bench", description="Folder", layout={"width": "300px"})
        self.save = button("Save the bench", self._save, icon="save", style="primary")
        self.load = button("Load", self._load, icon="folder-open", tooltip="Replace everything by the folder's state")
        self.page = widgets.Text(value=f"{name}_report.html", description="Report", layout={"width": "300px"})
        self.report = button("Write the report", self._report, icon="file-text-o")
        self.offer = FolderOffer(self.page, self._make_and_report)
        self._done = widgets.HTML()
        self._asked = False
        return [
            row(widgets.HTML('<div class="qdq-heading">As Python</div>'), self.what, self.copy),
            self.code,
            row(self.folder, self.save, self.load),
            row(self.page, self.report),
            self.offer.widget,
            self._done,
        ]

    def refresh(self) -> None:
        """Show the code of the present state."""
        self._show_code()
        # Something has changed since the first click on Load: ask again.
        self._asked = False

    def _show_code(self) -> None:
        self.code.value = self.bench.to_code() if self.what.value == "plan" else self.bench.to_script()

    @shows_errors
    def _save(self) -> None:
        folder = self.bench.save(self.folder.value.strip())
        note = "; of other states' weights it holds those that variants have, and those that undo brings back"
        left_out = note if self.bench.stage_note else ""
        self._done.value = text_html(f"Saved to {folder}{left_out}", "qdq-muted")

    @shows_errors
    def _load(self) -> None:
        if self.bench.has_work and not self._asked:
            self._asked = True
            self._done.value = text_html(
                f"Loading replaces {work_text(self.bench)}. Click Load again to do so, or save the bench first.",
                "qdq-warning",
            )
            return
        self._asked = False
        self.bench.load(self.folder.value.strip())
        self._done.value = text_html(f"Loaded {self.folder.value}", "qdq-muted")

    @shows_errors
    def _report(self) -> None:
        if not self.offer.is_needed():
            self._write_report()

    @shows_errors
    def _make_and_report(self) -> None:
        self.offer.make()
        self._write_report()

    def _write_report(self) -> None:
        path = self.bench.report(self.page.value.strip())
        self._done.value = text_html(f"Written to {path}", "qdq-muted")
