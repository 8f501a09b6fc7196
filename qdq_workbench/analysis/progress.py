"""Progress of long sweeps: to the caller's function, or to a bar in the terminal or the notebook."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

#: Called with the steps done, the steps in all, and what was done last.
ProgressFunction = Callable[[int, int, str], Any]


@contextmanager
def shown_progress(progress: ProgressFunction | None, title: str, *, verbose: bool) -> Iterator[ProgressFunction]:
    """Yield the function that shows progress: the caller's, else that of a bar, else one that shows nothing.

    Args:
        progress: The caller's function, if any.
        title: Text beside the bar.
        verbose: Whether to show a bar where there is no function.
    """
    if progress is not None or not verbose:
        yield progress if progress is not None else _nothing
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns) as bar:
        task = bar.add_task(title, total=None)

        def show(done: int, total: int, text: str) -> None:
            bar.update(task, completed=done, total=total, description=f"{title}: {text}" if text else title)

        yield show


def _nothing(done: int, total: int, text: str) -> None:
    """Show nothing."""
