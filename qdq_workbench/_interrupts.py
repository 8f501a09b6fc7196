"""Deferring Ctrl-C to places where it does no harm.

An interrupt inside Keras or TensorFlow may leave them in a state in which every later call of the process fails or
gives wrong results. Python raises KeyboardInterrupt between any two instructions of the main thread: between the
opening of a scope and the `try` that closes it, or while Keras initializes the variables of a layer. Code inside
`interrupts_held` is not interrupted: a Ctrl-C takes effect at the next `safe_point`, or at the end. If that takes
longer than `PATIENCE` seconds, a second Ctrl-C takes effect at once. The user's own code, such as an iterator of
batches, runs inside `interrupts_released`, where Ctrl-C works as usual.

Signals reach only the main thread, so these functions do nothing in other threads, or if SIGINT has no Python handler.
Work in any thread ends at a safe point by `stoppable`.
"""

from __future__ import annotations

import contextlib
import inspect
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from types import FrameType
from typing import Any, TypeVar

from qdq_workbench.errors import DataError, StoppedError

Item = TypeVar("Item")

#: Seconds after which a second Ctrl-C no longer waits.
PATIENCE = 5.0


class _Waiting:
    """The pending Ctrl-C of the main thread."""

    since: float | None = None
    usual: Any = None  # the handler that `_note` replaces

    def act(self) -> None:
        """Call the usual handler if a Ctrl-C is pending."""
        if self.since is not None:
            self.since = None
            self.usual(signal.SIGINT, inspect.currentframe())


_WAITING = _Waiting()


class _Stop(BaseException):
    """Ends the work at a safe point; no `Exception`, so that code which reports those lets it pass."""


class _Stops(threading.local):
    """The functions of the present thread that `stoppable` was given."""

    asked: tuple[Callable[[], Any], ...] = ()


_STOPS = _Stops()


def _note(number: int, frame: FrameType | None) -> None:
    """Handle SIGINT while it is held: note it, or call the usual handler for a second one after `PATIENCE`."""
    now = time.monotonic()
    if _WAITING.since is None:
        _WAITING.since = now
    elif now - _WAITING.since > PATIENCE:
        _WAITING.since = None
        _WAITING.usual(number, frame)


def _is_held() -> bool:
    return threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGINT) is _note


class interrupts_held(contextlib.ContextDecorator):  # noqa: N801 - used like a function
    """Hold Ctrl-C in the body, up to the next `safe_point`; works as a decorator too.

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
        """Replace the usual handler by `_note`, in the main thread and unless it is held already."""
        usual = signal.getsignal(signal.SIGINT)
        if usual is _note or not callable(usual) or threading.current_thread() is not threading.main_thread():
            return
        # Before `_note` is installed, which uses both.
        _WAITING.since, _WAITING.usual = None, usual  # a Ctrl-C at the end of the last hold may still be noted
        signal.signal(signal.SIGINT, _note)
        self._holds = True

    def __exit__(self, *_: object) -> None:
        """Restore the usual handler, and call it if a Ctrl-C is pending."""
        if self._holds:
            if _is_held():  # else the code inside has installed another handler
                signal.signal(signal.SIGINT, _WAITING.usual)
            _WAITING.act()


class interrupts_released:  # noqa: N801 - used like a function
    """Let Ctrl-C take effect as usual in the body, inside an `interrupts_held`."""

    _released = False

    def __enter__(self) -> None:
        """Let a pending Ctrl-C take effect, then restore the usual handler."""
        if _is_held():
            _WAITING.act()
            self._released = True
            signal.signal(signal.SIGINT, _WAITING.usual)

    def __exit__(self, *_: object) -> None:
        """Hold Ctrl-C again, unless the code inside has removed the handler."""
        usual = signal.getsignal(signal.SIGINT)
        if self._released and callable(usual):
            _WAITING.usual = usual
            signal.signal(signal.SIGINT, _note)


@contextlib.contextmanager
def stoppable(stop: Callable[[], Any]) -> Iterator[None]:
    """Let another thread end the exports, verifications and conversions of this one.

    Ctrl-C reaches only the main thread of a program. In the body, every function of this package asks `stop` where it
    would let a Ctrl-C take effect: between two layers of a conversion, two steps of an export, two batches. Files are
    written under their names only when they are complete, so one that was stopped leaves what was there.

    Args:
        stop: Called without arguments in this thread, up to some hundred times; a true value ends the work. An
            error that it raises ends the work too.

    Returns:
        A context, for `with`.

    Raises:
        StoppedError: At the end of the body, if `stop` has ended the work.
        DataError: If `stop` is no function.

    Example:
        >>> import keras, numpy as np, pathlib, tempfile, threading
        >>> from qdq_workbench import calibrate, errors, export_onnx, files, quantize_model
        >>> image = keras.Input((2,), name="image")
        >>> q_model = quantize_model(keras.Model(image, keras.layers.Dense(1, name="head")(image)))
        >>> _ = calibrate(q_model, np.ones((1, 2)), verbose=False)
        >>> stop = threading.Event()
        >>> stop.set()  # by a button, or by a timer of another thread
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = pathlib.Path(folder) / "model.onnx"
        ...     try:
        ...         with files.stoppable(stop.is_set):
        ...             report = export_onnx(q_model, path)
        ...     except errors.StoppedError:
        ...         print("stopped; a file was written:", path.exists())
        stopped; a file was written: False
    """
    if not callable(stop):
        raise DataError(
            f"stop must be a function that returns whether to stop, such as threading.Event().is_set. "
            f"Received: stop={stop!r}"
        )
    outer = _STOPS.asked
    _STOPS.asked = (*outer, stop)
    try:
        yield
    except _Stop as error:
        if error.args[0] is not stop:  # an outer one's
            raise
        raise StoppedError(
            "Stopped before the work was done, as requested. What was complete before is kept."
        ) from None
    finally:
        _STOPS.asked = outer


def _ask_stops() -> None:
    """End the work if a function that `stoppable` was given says so."""
    asked = _STOPS.asked
    _STOPS.asked = ()  # these functions may call some that have safe points
    try:
        for stop in asked:
            if stop():
                raise _Stop(stop)
    finally:
        _STOPS.asked = asked


def safe_point() -> None:
    """Let a pending Ctrl-C, or a stop that was requested, take effect here, where no operation is incomplete."""
    if _STOPS.asked:
        _ask_stops()
    if _WAITING.since is not None and _is_held():
        _WAITING.act()


def released_between(items: Iterable[Item]) -> Iterator[Item]:
    """Yield the items of the user's iterable, with Ctrl-C released while the iterable runs."""
    with interrupts_released():
        iterator = iter(items)
    while True:
        with interrupts_released():
            try:
                item = next(iterator)
            except StopIteration:
                return
        yield item
