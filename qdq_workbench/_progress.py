"""Progress of long sweeps, reported to the caller's function or shown as a bar in the terminal or the notebook."""

from __future__ import annotations

import numbers
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from qdq_workbench._interrupts import interrupts_released
from qdq_workbench.errors import DataError

#: Called with the number of steps done, the total number of steps, 0 if it is not known, and a text about a step.
ProgressFunction = Callable[[int, int, str], Any]


@contextmanager
def shown_progress(progress: ProgressFunction | None, title: str, *, verbose: bool) -> Iterator[ProgressFunction]:
    """Yield the function that reports progress: the caller's, else that of a bar, else one that does nothing.

    Args:
        progress: The caller's function, or None.
        title: Text next to the bar.
        verbose: Whether to show a bar if `progress` is None.
    """
    if progress is not None or not verbose:
        yield progress if progress is not None else _nothing
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns) as bar:
        task = bar.add_task(title, total=None)

        def show(done: int, total: int, text: str) -> None:
            bar.update(task, completed=done, total=total or None, description=f"{title}: {text}" if text else title)

        yield show


@contextmanager
def shown_while_held(
    progress: ProgressFunction | None, stop: Callable[[], bool] | None, title: str, *, verbose: bool
) -> Iterator[tuple[ProgressFunction, Callable[[], bool]]]:
    """Yield what reports progress and what asks whether to stop, for work that holds interrupts."""
    with shown_progress(progress, title, verbose=verbose) as show:

        def shown(done: int, total: int, text: str) -> None:
            with interrupts_released():
                show(done, total, text)

        def stopped() -> bool:
            with interrupts_released():
                return stop is not None and bool(stop())

        yield shown, stopped


def check_functions(**functions: Any) -> None:
    """Raise DataError unless every argument is callable or None, before a long computation begins."""
    for name, function in functions.items():
        if function is not None and not callable(function):
            raise DataError(f"{name} must be a function, or None. Received: {name}={function!r}")


def check_count(name: str, value: Any) -> None:
    """Raise DataError unless the argument `name` is None (for all) or an integer from 1 on."""
    if value is not None and not is_count(value):
        raise DataError(f"{name} must be an integer from 1 on, or None for all. Received: {name}={value!r}")


def is_count(value: Any) -> bool:
    """Return whether a value is an integer from 1 on, also one of NumPy; a truth value is none."""
    return not isinstance(value, bool) and isinstance(value, numbers.Integral) and int(value) >= 1


def _nothing(done: int, total: int, text: str) -> None:
    """Do nothing."""
