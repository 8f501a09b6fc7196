"""What panes remember, by their class names: saved with the bench, restored with it, taken along to the next bench.

Values are what a JSON file gives back, so that a pane meets the same ones before and after `save` and `load`.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping
from typing import Any

from qdq_widgets.errors import BenchError
from qdq_widgets.events import Events


class PaneStates:
    """The values of all panes; a part of `Workbench`.

    Args:
        events: Told "panes" when a value changes.
    """

    def __init__(self, events: Events) -> None:
        self._events = events
        self._values: dict[str, dict[str, Any]] = {}

    def of(self, pane: str) -> dict[str, Any]:
        """Return what a pane remembers; nothing where it has remembered nothing yet.

        Args:
            pane: The name of its class.
        """
        return copy.deepcopy(self._values.get(pane, {}))

    def remember(self, pane: str, /, **values: Any) -> None:
        """Give some names of a pane new values; its others stay.

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
        """Return what all panes remember, as a bench's file holds it."""
        return copy.deepcopy(self._values)

    def take_over(self, states: Mapping[str, Mapping[str, Any]]) -> None:
        """Replace what all panes remember; values of panes that are not known here wait for a bench that knows them.

        Args:
            states: What `to_dict` returned.
        """
        self._values = {pane: copy.deepcopy(dict(values)) for pane, values in states.items()}
        self._events.tell("panes")
