"""The demo's progress: bars on a terminal, one line per finished step everywhere."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn


class Step:
    """One step while it runs.

    Args:
        progress: The bars.
        task: This step's bar.
    """

    def __init__(self, progress: Progress, task: TaskID) -> None:
        self._progress = progress
        self._task = task
        self.result = ""

    def advance(self, text: str) -> None:
        """Advance the bar by one unit and show `text` next to it."""
        self.result = text
        self._progress.update(self._task, advance=1, result=text)


class Steps:
    """The steps of a run, in order.

    Args:
        console: The console to draw on; None for standard error, so that standard output has only the result.
    """

    def __init__(self, console: Console | None = None) -> None:
        self._console = console or Console(stderr=True, highlight=False)

    @contextlib.contextmanager
    def step(self, title: str, units: int | None = None) -> Iterator[Step]:
        """Show a step while the body runs, and a line with its result and duration afterwards.

        `units` is the number of calls of `advance`; None draws a bar that only shows activity.
        """
        start = time.perf_counter()
        with Progress(
            TextColumn("  {task.description:<34}", markup=False),
            BarColumn(bar_width=24),
            MofNCompleteColumn() if units else TextColumn(""),
            TimeElapsedColumn(),
            TextColumn("{task.fields[result]}", markup=False),
            console=self._console,
            transient=True,
            disable=not self._console.is_terminal,
        ) as progress:
            step = Step(progress, progress.add_task(title, total=units, result=""))
            yield step
        seconds = time.perf_counter() - start
        self._console.print(f"  {title:<34} {seconds:6.1f} s  {step.result}", markup=False, soft_wrap=True)
