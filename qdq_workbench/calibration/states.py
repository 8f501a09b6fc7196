"""States of observers, serialized only on demand: compressing histograms takes as long as a pass over data."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any


class States(Mapping[str, Mapping[str, Any]]):
    """JSON-compatible dictionaries by name, each created when it is first read.

    Args:
        makers: By name, the function that returns the dictionary.

    Example:
        >>> states = States({"relu1": lambda: {"batches": 2}})
        >>> states["relu1"], list(states), states == {"relu1": {"batches": 2}}
        ({'batches': 2}, ['relu1'], True)
    """

    def __init__(self, makers: Mapping[str, Callable[[], Mapping[str, Any]]]) -> None:
        self._makers = dict(makers)
        self._made: dict[str, Mapping[str, Any]] = {}

    def __getitem__(self, name: str) -> Mapping[str, Any]:
        """Return one dictionary."""
        if name not in self._made:
            self._made[name] = self._makers[name]()
        return self._made[name]

    def __iter__(self) -> Iterator[str]:
        """Iterate over the names."""
        return iter(self._makers)

    def __len__(self) -> int:
        """Count the names."""
        return len(self._makers)

    def __contains__(self, name: object) -> bool:
        """Whether there is such a name; this creates no dictionary."""
        return name in self._makers

    def __repr__(self) -> str:
        """The names; the dictionaries are long."""
        return f"States({list(self._makers)})"

    def __reduce__(self) -> tuple[Any, ...]:
        """Copies and pickles are plain dictionaries."""
        return dict, (dict(self),)
