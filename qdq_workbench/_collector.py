"""Pausing Python's garbage collector while very many long-lived objects are created.

Building or writing a model creates thousands of layers, graph nodes and tensors, hardly any of them garbage. The
collector traverses all objects of the process whenever their number has grown by a quarter, so the time per layer
grows with the model: at 800 layers the collector takes a tenth of the time of both.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from qdq_workbench._interrupts import interrupts_held


class _Pause:
    """The pause of the process's collector, which ends when the last thread that uses it leaves."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._users = 0
        self._was_on = False

    def begin(self) -> None:
        with self._lock:
            if not self._users:
                self._was_on = gc.isenabled()  # a collector that the user has disabled stays off
                gc.disable()
            self._users += 1

    def end(self) -> None:
        with self._lock:
            self._users -= 1
            if not self._users and self._was_on:
                gc.enable()


_PAUSE = _Pause()


@contextmanager
def collector_paused() -> Iterator[None]:
    """Pause the collector in the body, and hold Ctrl-C up to a safe point; afterwards restore the collector's state.

    Works as a decorator too. Reference counting still frees objects. With several threads inside, the last one to
    leave restores the state.

    Example:
        >>> import gc
        >>> with collector_paused():
        ...     gc.isenabled()
        False
        >>> gc.isenabled()
        True
    """
    with interrupts_held():  # an interrupt between the pause and the `try` would leave the collector off
        _PAUSE.begin()
        try:
            yield
        finally:
            _PAUSE.end()
