"""Threads of the bench end before Python does.

A daemon thread that returns from C++ code to a Python that has ended is ended by force, and C++ code that does not
allow that ends the process with "terminate called without an active exception", whatever the exit status was to be.
"""

from __future__ import annotations

import atexit
import contextlib
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import qdq_workbench as qdq

#: Seconds that the end of Python waits for all threads together; Jupyter kills a kernel after as many.
PATIENCE = 5.0

_ENDING = threading.Event()
_STOPS: weakref.WeakKeyDictionary[threading.Thread, Callable[[], Any]] = weakref.WeakKeyDictionary()


@contextlib.contextmanager
def ended_with_python(stop: Callable[[], Any]) -> Iterator[None]:
    """Run the body of a daemon thread so that the end of Python ends it first.

    `stop` requests the end of the body, from another thread; what the body calls of the library ends at its next safe
    point in any case.
    """
    thread = threading.current_thread()
    _STOPS[thread] = stop
    try:
        with qdq.files.stoppable(_ENDING.is_set):
            yield
    except qdq.errors.StoppedError:
        if not _ENDING.is_set():
            raise
    finally:
        _STOPS.pop(thread, None)


@atexit.register
def end_threads() -> None:
    """Request the end of all threads and wait for them, up to `PATIENCE` seconds."""
    _ENDING.set()
    running = dict(_STOPS)
    for stop in running.values():
        stop()
    until = time.monotonic() + PATIENCE
    for thread in running:
        if thread is not threading.current_thread():
            thread.join(max(0.0, until - time.monotonic()))
