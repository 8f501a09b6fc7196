"""Ctrl-C at places of our choosing.

Keras and TensorFlow, interrupted in the middle, may stay in a state in which every later call of the process fails, or
computes something else. Python raises KeyboardInterrupt between any two instructions of the main thread: behind the
opening of a scope and in front of the `try` that closes it, or while Keras gives the variables of a layer their first
values. What runs inside `interrupts_held` is not interrupted: a Ctrl-C that comes meanwhile takes effect at the next
`safe_point`, or at the end. Where no such place comes for several seconds, one more Ctrl-C takes effect at once. Code
of the user's own, such as an iterator of batches, runs inside `interrupts_released`, as if nothing were held.

Signals come to the main thread alone, so nothing happens in others; nor where SIGINT has no handler in Python.
"""

from __future__ import annotations

import contextlib
import inspect
import signal
import threading
import time
from collections.abc import Iterable, Iterator
from types import FrameType
from typing import Any, TypeVar

Item = TypeVar("Item")

#: Seconds after which a second Ctrl-C no longer waits.
PATIENCE = 5.0


class _Waiting:
    """The Ctrl-C that waits; of the main thread alone."""

    since: float | None = None
    usual: Any = None  # the handler that ours stands in for

    def act(self) -> None:
        """Let the usual handler have it."""
        if self.since is not None:
            self.since = None
            self.usual(signal.SIGINT, inspect.currentframe())


_WAITING = _Waiting()


def _note(number: int, frame: FrameType | None) -> None:
    """Take SIGINT in the place of the usual handler."""
    now = time.monotonic()
    if _WAITING.since is None:
        _WAITING.since = now
    elif now - _WAITING.since > PATIENCE:
        _WAITING.since = None
        _WAITING.usual(number, frame)


def _is_held() -> bool:
    return threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGINT) is _note


class interrupts_held(contextlib.ContextDecorator):  # noqa: N801 - used like a function
    """Hold Ctrl-C back inside, up to the next `safe_point`; a decorator too.

    Example:
        >>> done = []
        >>> try:
        ...     with interrupts_held():
        ...         signal.raise_signal(signal.SIGINT)
        ...         done.append("finished")
        ... except KeyboardInterrupt:
        ...     done.append("interrupted")
        >>> done
        ['finished', 'interrupted']
    """

    _holds = False

    def _recreate_cm(self) -> interrupts_held:
        return interrupts_held()  # a decorated function may call itself

    def __enter__(self) -> None:
        """Put our handler in place of the usual one. No line is interrupted behind the one that does it."""
        usual = signal.getsignal(signal.SIGINT)
        if usual is _note or not callable(usual) or threading.current_thread() is not threading.main_thread():
            return
        _WAITING.since, _WAITING.usual = None, usual  # one may be left where another came as the last hold ended
        signal.signal(signal.SIGINT, _note)
        self._holds = True

    def __exit__(self, *_: object) -> None:
        """Put the usual handler back, and let it have what has come."""
        if self._holds:
            if _is_held():  # else somebody has put another handler there
                signal.signal(signal.SIGINT, _WAITING.usual)
            _WAITING.act()


class interrupts_released:  # noqa: N801 - used like a function
    """Let Ctrl-C come as usual inside, where it may be held outside."""

    _released = False

    def __enter__(self) -> None:
        """Let what has come take effect, then put the usual handler back."""
        if _is_held():
            _WAITING.act()
            self._released = True
            signal.signal(signal.SIGINT, _WAITING.usual)

    def __exit__(self, *_: object) -> None:
        """Hold again, unless the code inside has taken the handler away."""
        usual = signal.getsignal(signal.SIGINT)
        if self._released and callable(usual):
            _WAITING.usual = usual
            signal.signal(signal.SIGINT, _note)


def safe_point() -> None:
    """Let a Ctrl-C that waits take effect here, where nothing is half done."""
    if _WAITING.since is not None and _is_held():
        _WAITING.act()


def released_between(items: Iterable[Item]) -> Iterator[Item]:
    """Yield what the user's own iterable gives, with Ctrl-C as usual while it works.

    Args:
        items: The iterable.
    """
    with interrupts_released():
        iterator = iter(items)
    while True:
        with interrupts_released():
            try:
                item = next(iterator)
            except StopIteration:
                return
        yield item
