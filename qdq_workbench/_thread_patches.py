"""Scopes in which a function that the whole process shares behaves otherwise, in one thread alone."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any


class ThreadPatch:
    """A scope in which this thread's calls of a function go to another one; other threads call it as ever.

    Args:
        owner: Returns the module or class that has the function.
        name: The function's name there.
        otherwise: Called in its place, with the function itself and the arguments.
    """

    def __init__(self, owner: Callable[[], Any], name: str, otherwise: Callable[..., Any]) -> None:
        self._owner, self._name, self._otherwise = owner, name, otherwise
        self._lock = threading.Lock()
        self._users, self._usual = 0, None
        self._here = threading.local()  # `depth`: how often this thread is inside

    def __enter__(self) -> None:
        owner = self._owner()
        with self._lock:
            if not self._users:
                self._usual = getattr(owner, self._name)
                setattr(owner, self._name, self._call_of(self._usual))
            self._users += 1
        self._here.depth = self._depth + 1

    def __exit__(self, *raised: object) -> None:
        self._here.depth = self._depth - 1
        with self._lock:
            self._users -= 1
            if not self._users:
                setattr(self._owner(), self._name, self._usual)

    @property
    def _depth(self) -> int:
        return getattr(self._here, "depth", 0)

    def _call_of(self, usual: Any) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            return self._otherwise(usual, *args, **kwargs) if self._depth else usual(*args, **kwargs)

        vars(call)["__wrapped__"] = usual  # what another thread reads of the signature, as Keras does of a new layer's
        return call
