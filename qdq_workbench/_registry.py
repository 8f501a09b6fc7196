"""A registry of named entries, with errors for duplicate and unknown names."""

from __future__ import annotations

from typing import Generic, TypeVar

from qdq_workbench.errors import QDQError, nearest_names

T = TypeVar("T")


class Registry(Generic[T]):
    """Named entries of one kind.

    Args:
        kind: The kind of the entries for error messages, such as "calibration method".
        error: The error class for a name that is unknown or taken.
    """

    def __init__(self, kind: str, error: type[QDQError]) -> None:
        self._kind = kind
        self._error = error
        self._entries: dict[str, T] = {}

    def add(self, name: str, entry: T) -> T:
        """Register `entry` under `name` and return it.

        Raises:
            QDQError: The registry's error class, if the name is taken.
        """
        if name in self._entries:
            raise self._error(f"There is already a {self._kind} called {name!r}; choose another name.")
        self._entries[name] = entry
        return entry

    def get(self, name: str) -> T:
        """Return the entry called `name`.

        Raises:
            QDQError: The registry's error class, with the nearest names, if there is none.
        """
        if not isinstance(name, str) or name not in self._entries:
            hint = nearest_names(str(name), self._entries)
            raise self._error(f"There is no {self._kind} of that name. {hint} Received: {self._kind}={name!r}")
        return self._entries[name]

    def names(self) -> list[str]:
        """Return the registered names, sorted."""
        return sorted(self._entries)
