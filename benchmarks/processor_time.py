"""Ratios in time and in processor time: the latter hardly depends on what else the machine does."""

import functools
import time
from collections.abc import Callable, Mapping

from rounds import interleaved, print_ratios


def print_both(
    title: str, calls: Mapping[str, Callable[[], object]], base: str, rounds: int = 7, repeat: int = 1
) -> None:
    """Measure calls in interleaved rounds and print their ratios to one of them.

    Args:
        title: What is measured.
        calls: Functions by name.
        base: The one that the others are compared with.
        rounds: How often every function takes its turn.
        repeat: Calls per turn.
    """
    work: dict[str, list[float]] = {name: [] for name in calls}
    timed = {name: functools.partial(_add_processor_time, call, work[name]) for name, call in calls.items()}
    print_ratios(title, interleaved(timed, rounds, repeat), base)
    measured = {name: sorted(times[1:]) for name, times in work.items()}  # the first call is the warm-up
    medians = {name: times[len(times) // 2] for name, times in measured.items()}
    print_ratios(f"{title}, processor time", medians, base)


def _add_processor_time(call: Callable[[], object], times: list[float]) -> None:
    started = time.process_time()
    call()
    times.append(time.process_time() - started)
