"""A button that creates the missing folder of a file that is about to be written."""

from __future__ import annotations

import html
import pathlib
from collections.abc import Callable
from typing import Any

import ipywidgets as widgets

from qdq_widgets.errors import BenchError
from qdq_widgets.pane import button, row


class FolderOffer:
    """Offers to create the folder of a file that is about to be written.

    Args:
        field: The text field with the file's path; the offer is hidden when it changes.
        on_click: Called when the button is clicked; it calls `make` and writes the file.
    """

    def __init__(self, field: Any, on_click: Callable[[], Any]) -> None:
        self._field = field
        self._text = widgets.HTML()
        self.make_it = button("Make the folder and go on", on_click, icon="folder", style="primary")
        self.widget = row(self._text, self.make_it)
        self.widget.layout.display = "none"
        field.observe(lambda _: self.hide(), "value")

    @property
    def _folder(self) -> pathlib.Path:
        return pathlib.Path(self._field.value.strip()).parent

    def is_needed(self) -> bool:
        """Show the offer if the folder is missing; return whether it is."""
        folder = self._folder
        missing = bool(self._field.value.strip()) and not folder.exists()
        self._text.value = f"There is no folder <b>{html.escape(str(folder))}</b> yet."
        self.widget.layout.display = "" if missing else "none"
        return missing

    def hide(self) -> None:
        """Hide the offer."""
        self.widget.layout.display = "none"

    def make(self) -> None:
        """Create the folder.

        Raises:
            BenchError: If it cannot be created.
        """
        self.hide()
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise BenchError(
                f"The folder cannot be made: {error.strerror or error}. Give another one. "
                f"Received: folder={str(self._folder)!r}"
            ) from error
