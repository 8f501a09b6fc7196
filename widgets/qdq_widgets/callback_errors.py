"""Errors of callbacks: shown in the pane that was clicked, instead of lost in a log."""

from __future__ import annotations

import functools
import html
import traceback
from collections.abc import Callable
from typing import Any, TypeVar

import ipywidgets as widgets

from qdq_workbench import QDQError

Method = TypeVar("Method", bound=Callable[..., Any])


class ErrorBox:
    """Shows the last error of a pane until the next click or until it is closed."""

    def __init__(self) -> None:
        self._text = widgets.HTML()
        self._close = widgets.Button(icon="times", tooltip="Close", layout={"width": "30px"})
        self._close.add_class("qdq-ghost")
        self._close.on_click(lambda _: self.clear())
        self.widget = widgets.HBox([self._text, self._close], layout={"display": "none"})
        self.widget.add_class("qdq-error")
        self.message = ""

    def show(self, error: BaseException) -> None:
        """Show an error, with its traceback unless it is a `QDQError`."""
        self.message = str(error) or type(error).__name__
        body = f'<div role="alert"><b>{_title(error)}</b><p>{_sentences(self.message)}</p>'
        if not isinstance(error, QDQError):
            trace = "".join(traceback.format_exception(type(error), error, error.__traceback__))
            body += f"<details><summary>Where it happened</summary><pre>{html.escape(trace)}</pre></details>"
        self._text.value = f"{body}</div>"
        self.widget.layout.display = "flex"

    def clear(self) -> None:
        """Hide the error."""
        self.message = ""
        self._text.value = ""
        self.widget.layout.display = "none"


def shows_errors(method: Method) -> Method:
    """Wrap a method of a pane: errors are shown in its `errors` box until the next click, instead of raised."""

    @functools.wraps(method)
    def wrapped(self: Any, *args: Any, **kwargs: Any) -> Any:
        self.errors.clear()  # before, not after: work that was started meanwhile may already have failed
        try:
            return method(self, *args, **kwargs)
        except Exception as error:  # noqa: BLE001 - a callback has no caller who could see the error
            self.errors.show(error)
            return None

    return wrapped  # type: ignore[return-value]


def _title(error: BaseException) -> str:
    if isinstance(error, QDQError):
        return "This did not work"
    return f"Unexpected {html.escape(type(error).__name__)}: please report it"


def _sentences(message: str) -> str:
    """Return a message as HTML, with the part after "Received:" on a line of its own."""
    text, received, values = message.partition(" Received: ")
    shown = html.escape(text).replace("\n", "<br>")
    if received:
        shown += f'<br><span class="qdq-muted">Received: {html.escape(values)}</span>'
    return shown
