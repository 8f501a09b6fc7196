"""The Netron pane: an exported file in Netron, in the notebook or in a tab, with notes about Netron."""

from __future__ import annotations

import html
from collections.abc import Sequence
from typing import Any

import ipywidgets as widgets

from qdq_widgets.callback_errors import shows_errors
from qdq_widgets.errors import BenchError
from qdq_widgets.netron_server import LIFETIME_DAYS, netron_release
from qdq_widgets.pane import Pane, button, row, set_options, text_html
from qdq_widgets.replacing import replace_children

FRAME_HEIGHT = 560


class NetronPane(Pane):
    """Shows one exported file."""

    title = "Netron"
    events = ("export", "netron")

    def build(self) -> Sequence[Any]:
        """Make the widgets."""
        self.file = widgets.Dropdown(description="File", layout={"width": "380px"})
        self.show = button("Show", self._show, icon="eye", style="primary")
        hint = "Without Netron: draw the plan that the file was built from"
        self.draw = button("Draw its plan", self._draw, icon="sitemap", tooltip=hint)
        self._note = widgets.HTML(netron_note())
        self._drawing = widgets.VBox()
        self._links = widgets.HTML()
        self._newest: tuple[Any, int] = (None, 0)
        self.frame = widgets.HTML()
        controls = row(self.file, self.show, self.draw, self._links)
        return [controls, self.errors.widget, self._note, self.frame, self._drawing]

    def refresh(self) -> None:
        """Offer the files exported so far, and show the page that was requested last."""
        exported = [str(done.path) for done in reversed(self.bench.exports) if done.path.suffix == ".onnx"]
        paths = list(dict.fromkeys(exported))
        page = self.bench.netron_page
        if page is not None and str(page.path) not in paths:
            paths.insert(0, str(page.path))
        newest = (page, len(self.bench.exports))
        wanted = None
        if newest != self._newest:  # a page was requested or a file exported since the last refresh
            asked = page is not None and page is not self._newest[0]
            wanted = str(page.path) if asked and page is not None else next(iter(paths), None)
            self._newest = newest
        set_options(self.file, paths, wanted)
        self.show.disabled = self.draw.disabled = not paths
        if page is None:
            self._links.value = "" if paths else text_html("Export a file first.", "qdq-muted")
            return
        self._links.value = page.links()
        frame = page.frame(FRAME_HEIGHT)
        if self.frame.value != frame:
            self.frame.value = frame

    @shows_errors
    def _show(self) -> None:
        if netron_release().expired:
            self._draw_plan()
            return
        replace_children(self._drawing, ())
        self.frame.value = ""  # so that the frame is loaded again: the file may have been replaced
        self.bench.show_netron(self.file.value)

    @shows_errors
    def _draw(self) -> None:
        self._draw_plan()

    def _draw_plan(self) -> None:
        """Draw the plan of the chosen file in a read-only graph view."""
        from qdq_widgets.graph_view import GraphView

        plans = [done.plan for done in self.bench.exports if str(done.path) == self.file.value]
        if not plans:
            raise BenchError(
                f"The bench did not export this file, so it does not know its plan. Received: {self.file.value!r}"
            )
        self.frame.value = ""
        replace_children(self._drawing, (GraphView(plans[-1], height=FRAME_HEIGHT, editable=False),))


def netron_note() -> str:
    """Return notes about the installed Netron, as HTML."""
    release = netron_release()
    text = (
        f"Netron {release.version} runs from the installed package. On its own it contacts an address service and an "
        "analytics service; the page served here may connect to this bench only, so your browser blocks both. Its "
        "dialog about cookies still comes up once."
    )
    if release.expired:
        text += f" This release has stopped working {LIFETIME_DAYS} days after it was made: pip install -U netron."
    elif release.days_left is not None:
        text += f" This release works for another {release.days_left} days, then: pip install -U netron."
    warning = " qdq-warning" if release.expired else ""
    summary = "<summary>Netron's reports about you are blocked here; more about it</summary>"
    return f'<details class="qdq-muted{warning}">{summary}{html.escape(text)}</details>'
