"""The bench outside of the notebook: as Python, as a folder, as one HTML report."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import ipywidgets as widgets

from qdq_widgets.callback_errors import shows_errors
from qdq_widgets.earlier import work_text
from qdq_widgets.folder_offer import FolderOffer
from qdq_widgets.pane import Pane, button, file_name, row, text_html


class FilesPane(Pane):
    """Shows the code, saves and loads the bench, writes the report."""

    title = "Code & files"

    def build(self) -> Sequence[Any]:
        """Make the widgets."""
        self.code = widgets.Textarea(rows=10, layout={"width": "100%"}, disabled=False)
        self.code.add_class("qdq-code")
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
            widgets.HTML('<div class="qdq-heading">The present plan as Python</div>'),
            self.code,
            row(self.folder, self.save, self.load),
            row(self.page, self.report),
            self.offer.widget,
            self._done,
        ]

    def refresh(self) -> None:
        """Show the code of the present state."""
        self.code.value = self.bench.to_code()
        self._asked = False

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
