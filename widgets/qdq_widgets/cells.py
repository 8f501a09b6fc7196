"""Which cell shows which bench: once a cell has run again and shows another bench, the former view is closed.

Jupyter keeps every widget until it is closed, in the kernel and in the page, and with it what its callbacks hold.
"""

from __future__ import annotations

import dataclasses
import os
import sys
import threading
import weakref
from typing import Any

import ipywidgets as widgets
from ipywidgets.widgets.widget import _instances


@dataclasses.dataclass(frozen=True)
class Execution:
    """One execution of a cell.

    Attributes:
        session: The page that asked for it; a page that is loaded again has another one.
        cell: The id of the cell in its notebook, of which a copy has the same ids.
        message: The id of the request.
    """

    session: str
    cell: str
    message: str


class _Cell:
    """The benches in the outputs of a cell, and those that are no longer there and wait until they can be closed."""

    def __init__(self) -> None:
        self.message = ""
        self.is_running = False
        self.shown: weakref.WeakSet[Any] = weakref.WeakSet()
        self.replaced: weakref.WeakSet[Any] = weakref.WeakSet()

    def add(self, bench: Any, message: str) -> None:
        """Note a display; the first of an execution replaces those of the executions before."""
        if message != self.message:
            self.replaced |= self.shown
            self.shown = weakref.WeakSet()
            self.message, self.is_running = message, True
        self.shown.add(bench)


_lock = threading.Lock()  # cells can run in several threads, the subshells of a kernel
_cells: dict[tuple[str, str], _Cell] = {}
# Benches with a display that no cell is known for. They are never closed.
_elsewhere: weakref.WeakSet[Any] = weakref.WeakSet()


def shows_one_output() -> bool:
    """Return whether the host shows all forms of an output, and its cells are known by no id that lasts."""
    return "google.colab" in sys.modules or "VSCODE_PID" in os.environ


def present_execution() -> Execution | None:
    """Return the execution whose outputs a display becomes a part of now; None where nobody can tell."""
    from IPython import get_ipython

    shell: Any = get_ipython()
    kernel = getattr(shell, "kernel", None)
    if kernel is None or shows_one_output():
        return None
    request = kernel.get_parent("shell") or {}
    header, cell = request.get("header", {}), request.get("metadata", {}).get("cellId")
    session, message = header.get("session"), header.get("msg_id")
    if not (cell and session and message) or _is_captured(shell, message):
        return None
    return Execution(session, cell, message)


def _is_captured(shell: Any, message: str) -> bool:
    """Return whether outputs go to `%%capture` or an `Output` widget, which can stand in any other cell."""
    from IPython.core.displaypub import CapturingDisplayPublisher

    outputs = [one for one in list(_instances.values()) if isinstance(one, widgets.Output)]
    return isinstance(shell.display_pub, CapturingDisplayPublisher) or any(one.msg_id == message for one in outputs)


def note_display(bench: Any) -> None:
    """Note that a bench is displayed now; the end of the execution closes the benches that it has replaced.

    Not at once, since the execution may go on and display the former bench again.
    """
    execution = present_execution()
    with _lock:
        if execution is None:
            _elsewhere.add(bench)
            return
        _cells.setdefault((execution.session, execution.cell), _Cell()).add(bench, execution.message)
    from IPython import get_ipython

    shell: Any = get_ipython()
    shell.events.register("post_run_cell", close_replaced)  # nothing where it is registered already


def close_replaced(_: Any = None) -> None:
    """Close the benches that were replaced by finished executions, such as the present one, which ends here.

    A bench with a running task is closed at the end of a later execution: the task tells its panes how it went.
    """
    execution = present_execution()
    with _lock:
        if execution is not None:
            cell = _cells.get((execution.session, execution.cell))
            if cell is not None and cell.message == execution.message:
                cell.is_running = False
        shown = {bench for cell in _cells.values() for bench in cell.shown} | set(_elsewhere)
        closed = set()
        for cell in _cells.values():
            if not cell.is_running:
                cell.replaced -= shown
                closed |= {bench for bench in cell.replaced if not bench.jobs.is_busy}
                cell.replaced -= closed
    for bench in closed:
        close_view(bench)


def close_view(bench: Any) -> None:
    """Close the view of a bench, if there is one; the bench stays as it is, and makes another one when displayed."""
    view, bench._view = bench._view, None  # noqa: SLF001 - a bench makes its view itself, and only this ends one
    if view is not None:
        view.close()
        bench.effects.rest()
