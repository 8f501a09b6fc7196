"""Holding Python's garbage collector back while very many objects are made that all stay.

Layers, graph nodes and tensors come by the thousand while a model is built or written, and hardly any of them is
garbage. The collector looks through everything that the process holds every time their number has grown by a quarter,
so the time per layer grows with the model: at 800 layers it is a tenth of both.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from qdq_workbench._interrupts import interrupts_held


class _Pause:
    """The collector is the process's: it stays off until the last thread that holds it back lets go."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._users = 0
        self._was_on = False

    def begin(self) -> None:
        with self._lock:
            if not self._users:
                self._was_on = gc.isenabled()  # one that the user switched off stays off
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
    """Hold the collector back inside, and Ctrl-C up to a safe point; afterwards it runs again, if it ran before.

    Works as a decorator too. What only reference counting frees is freed all the same. Of several threads inside,
    the last to leave lets the collector run.

    Example:
        >>> import gc
        >>> with collector_paused():
        ...     gc.isenabled()
        False
        >>> gc.isenabled()
        True
    """
    with interrupts_held():  # one between the pause and the `try` would leave the collector off for good
        _PAUSE.begin()
        try:
            yield
        finally:
            _PAUSE.end()
