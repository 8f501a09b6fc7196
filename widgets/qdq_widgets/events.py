"""The events of a bench, for its view and the user's own functions."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

Listener = Callable[[str], Any]


class Events:
    """The listeners of one bench."""

    def __init__(self) -> None:
        self.listeners: list[Listener] = []

    def subscribe(self, listener: Listener, *, first: bool = False) -> Callable[[], None]:
        """Register a function that is called whenever something changes.

        Args:
            listener: Called with the name of the event: "plan", "job", "calibration", "curves", "stage", "export",
                "variants", "metrics", "colors", "selection", "sensitivity", "search", "diagnosis", "speed", "saved",
                "netron", "effect" or "panes".
            first: Call it before the functions that are registered already.

        Returns:
            A function that removes the listener again.
        """
        self.listeners.insert(0 if first else len(self.listeners), listener)

        def remove() -> None:
            with contextlib.suppress(ValueError):  # removed already
                self.listeners.remove(listener)

        return remove

    def tell(self, *events: str) -> None:
        """Call all listeners with each of the events."""
        for event in events:
            for listener in list(self.listeners):
                listener(event)
