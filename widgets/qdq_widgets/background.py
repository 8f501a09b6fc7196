"""Long work beside the kernel: one job at a time, with progress and a stop that works."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

from qdq_widgets.errors import BenchBusyError, BenchStoppedError

PACE_SECONDS = 2.0
"""How long work is watched before its pace counts."""


class Job:
    """One piece of long work while it runs.

    Args:
        label: What is being done.
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
        """How long the work will take at the pace so far; None while that cannot be told."""
        if self._since is None or self.fraction is None:
            return None
        start, already = self._since
        elapsed, done = time.monotonic() - start, self.fraction - already
        if elapsed < PACE_SECONDS or done <= 0:
            return None
        return elapsed * (1 - self.fraction) / done

    @property
    def stop_requested(self) -> bool:
        """Whether somebody asked the job to end early; the work looks at this between batches."""
        return self._stop.is_set()

    def stop(self) -> None:
        """Ask the job to end after the batch that is being computed."""
        if self._stop.is_set():
            return
        self._stop.set()
        self.report(self.fraction, "stopping after this batch ...")

    def raise_if_stopped(self) -> None:
        """End the work here where somebody asked it to end.

        Raises:
            BenchStoppedError: If so.
        """
        if self.stop_requested:
            raise BenchStoppedError(f"Stopped: {self.label}. What was not finished is not kept.")

    def report(self, fraction: float | None, text: str) -> None:
        """Say how far the work is.

        Args:
            fraction: From 0 to 1, or None where the end is not known.
            text: What is happening.
        """
        before = self.fraction
        self.fraction = None if fraction is None else min(max(fraction, 0.0), 1.0)
        if self.fraction is None:
            self._since = None
        elif before is None or self.fraction < before:  # another part of the work has begun
            self._since = (time.monotonic(), self.fraction)
        self.text = text
        self._on_change(self)


class Jobs:
    """Runs long work, never two pieces at once: Keras models are not safe to train from two threads.

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
        """Claim the right to do long work while the body runs.

        Args:
            label: What is being done.

        Raises:
            BenchBusyError: If other work is running.
        """
        if not self._busy.acquire(blocking=False):
            running = self.current.label if self.current is not None else "other work"
            raise BenchBusyError(
                f"The bench is busy with: {running}. Wait until it is done, or stop it first. Received: {label!r}"
            )
        try:
            self.current = Job(label, self._on_change)
            self._on_change(self.current)
            yield self.current
        finally:
            self.last, self.current = self.current, None
            self._busy.release()
            self._on_change(None)

    def start(self, work: Callable[[], Any], on_error: Callable[[BaseException], None]) -> threading.Thread:
        """Call `work`, which claims its own `run`, in a thread of its own.

        Args:
            work: What to do.
            on_error: Called with whatever `work` raises.
        """
        if self._busy.locked():
            running = self.current.label if self.current is not None else "other work"
            raise BenchBusyError(f"The bench is busy with: {running}. Wait until it is done, or stop it first.")

        def body() -> None:
            try:
                work()
            except BaseException as error:  # noqa: BLE001 - a thread has no caller: every error belongs to the pane
                on_error(error)

        self._thread = threading.Thread(target=body, name="qdq-workbench", daemon=True)
        self._thread.start()
        return self._thread

    def stop(self) -> None:
        """Ask the running work, if any, to end early."""
        job = self.current
        if job is not None:
            job.stop()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until the work started last has ended.

        Args:
            timeout: Seconds to wait at most; None for as long as it takes.

        Returns:
            Whether it has ended.
        """
        if self._thread is not None:
            self._thread.join(timeout)
            return not self._thread.is_alive()
        return True
