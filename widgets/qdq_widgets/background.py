"""Long tasks: one job at a time, with progress and a stop request."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import qdq_workbench as qdq
from qdq_widgets.errors import BenchBusyError, BenchStoppedError
from qdq_widgets.exiting import ended_with_python

PACE_SECONDS = 2.0
"""How long work is watched before its pace counts."""


class Job:
    """A long task while it runs.

    Args:
        label: The task, as messages name it.
        on_change: Called whenever progress changes.
    """

    def __init__(self, label: str, on_change: Callable[[Job], None]) -> None:
        self.label = label
        self.fraction: float | None = None
        self.text = ""
        self._stop = threading.Event()
        self._on_change = on_change
        self._since: tuple[float, float] | None = None

    @property
    def seconds_left(self) -> float | None:
        """The remaining seconds at the pace so far; None until the pace is known."""
        if self._since is None or self.fraction is None:
            return None
        start, already = self._since
        elapsed, done = time.monotonic() - start, self.fraction - already
        if elapsed < PACE_SECONDS or done <= 0:
            return None
        return elapsed * (1 - self.fraction) / done

    @property
    def stop_requested(self) -> bool:
        """Whether a stop was requested; the task checks this between its steps."""
        return self._stop.is_set()

    def stop(self) -> None:
        """Request that the job ends after the present step, such as a batch."""
        if self._stop.is_set():
            return
        self._stop.set()
        self.report(self.fraction, "stopping after this step ...")

    def raise_if_stopped(self) -> None:
        """End the task here if a stop was requested.

        Raises:
            BenchStoppedError: If a stop was requested.
        """
        if self.stop_requested:
            raise BenchStoppedError(f"Stopped: {self.label}. What was not finished is not kept.")

    @contextlib.contextmanager
    def stops(self) -> Iterator[None]:
        """End what the body calls of the library, once a stop was requested, where it would let Ctrl-C take effect.

        Raises:
            BenchStoppedError: If a stop was requested before the work was done.
        """
        try:
            with qdq.files.stoppable(self._stop.is_set):
                yield
        except qdq.errors.StoppedError:
            self.raise_if_stopped()
            raise

    def report(self, fraction: float | None, text: str) -> None:
        """Set what the task does now, and its progress from 0 to 1, None if the total is not known."""
        before = self.fraction
        self.fraction = None if fraction is None else min(max(fraction, 0.0), 1.0)
        if self.fraction is None:
            self._since = None
        elif before is None or self.fraction < before:  # another part of the work has begun
            self._since = (time.monotonic(), self.fraction)
        self.text = text
        self._on_change(self)


class Jobs:
    """Runs long tasks, one at a time: Keras models are not safe to train from two threads.

    Args:
        on_change: Called with the job when it starts or makes progress, and with None when it has ended.
    """

    def __init__(self, on_change: Callable[[Job | None], None]) -> None:
        self._on_change = on_change
        self._busy = threading.Lock()
        self._thread: threading.Thread | None = None
        self.current: Job | None = None
        self.last: Job | None = None

    @contextlib.contextmanager
    def run(self, label: str) -> Iterator[Job]:
        """Run the body as the one long task; raise `BenchBusyError` if another task is running."""
        if not self._busy.acquire(blocking=False):
            running = self.current.label if self.current is not None else "other work"
            raise BenchBusyError(
                f"The bench is busy with: {running}. Wait until it is done, or stop it first. Received: {label!r}"
            )
        try:
            self.current = Job(label, self._on_change)
            # Before the work begins: panes disable their buttons, and a measurement in the background makes way.
            self._on_change(self.current)
            yield self.current
        finally:
            self.last, self.current = self.current, None
            self._busy.release()
            self._on_change(None)

    def start(self, work: Callable[[], Any], on_error: Callable[[BaseException], None]) -> threading.Thread:
        """Call `work`, which enters `run` itself, in a new thread; `on_error` gets any error that it raises.

        If another task is running, raise `BenchBusyError`.
        """
        # Refuses a click at once. A job that begins between this look and the thread is refused by `run`.
        if self._busy.locked():
            running = self.current.label if self.current is not None else "other work"
            raise BenchBusyError(f"The bench is busy with: {running}. Wait until it is done, or stop it first.")

        def body() -> None:
            try:
                with ended_with_python(self.stop):
                    work()
            except BaseException as error:  # noqa: BLE001 - a thread has no caller: every error belongs to the pane
                on_error(error)

        # A daemon, so that the kernel can end while it runs.
        self._thread = threading.Thread(target=body, name="qdq-workbench", daemon=True)
        self._thread.start()
        return self._thread

    @property
    def is_busy(self) -> bool:
        """Whether a task is running, or the thread of the last one has not yet ended."""
        return self.current is not None or not self.wait(0)

    def stop(self) -> None:
        """Request a stop of the running task, if any."""
        job = self.current
        if job is not None:
            job.stop()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until the thread that `start` made last has ended, `timeout` seconds at most; return whether it has."""
        if self._thread is not None:
            self._thread.join(timeout)
            return not self._thread.is_alive()
        return True
