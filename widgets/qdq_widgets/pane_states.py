"""Remembered values of panes, by their class names: saved, restored and taken over with the bench.

Values are stored after a round trip through JSON, so that a pane gets the same ones before and after `load`.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping
from typing import Any

from qdq_widgets.errors import BenchError
from qdq_widgets.events import Events


class PaneStates:
    """The remembered values of all panes; a part of `Workbench`. A changed value causes the event "panes"."""

    def __init__(self, events: Events) -> None:
        self._events = events
        self._values: dict[str, dict[str, Any]] = {}

    def of(self, pane: str) -> dict[str, Any]:
        """Return the remembered values of a pane, by the name of its class; empty if there are none."""
        return copy.deepcopy(self._values.get(pane, {}))

    def remember(self, pane: str, /, **values: Any) -> None:
        """Set values of a pane; its other values stay.

        Args:
            pane: The name of its class.
            **values: Numbers, texts, booleans, None, and lists and dictionaries of them.

        Raises:
            BenchError: If a value is something else.
        """
        try:
            plain = json.loads(json.dumps(values))
        except (RecursionError, TypeError, ValueError) as error:
            raise BenchError(
                f"A pane remembers what JSON can hold: numbers, texts, lists, dictionaries ({error}). "
                f"Received: pane={pane!r}, {values!r}"
            ) from error
        before = self.of(pane)
        self._values[pane] = {**before, **plain}
        if self._values[pane] != before:
            self._events.tell("panes")

    def to_dict(self) -> dict[str, dict[str, Any]]:
        """Return the remembered values of all panes as a JSON-compatible dictionary."""
        return copy.deepcopy(self._values)

    def take_over(self, states: Mapping[str, Mapping[str, Any]]) -> None:
        """Replace the values of all panes by those of `to_dict`; those of unknown panes are kept for later benches."""
        self._values = {pane: copy.deepcopy(dict(values)) for pane, values in states.items()}
        self._events.tell("panes")
