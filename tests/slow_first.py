"""The order of the tests on several workers: every worker begins with slow rooms, and ends with quick tests.

`--dist worksteal` gives each worker a run of neighbours, and whoever is done takes from the end of another one's. Slow
modules that all lie at the beginning are one worker's: some are left to the end, where a long test keeps one worker
busy while the others have nothing to do.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any


def slow_first(
    items: Sequence[Any], is_slow: Callable[[Any], bool], room_of: Callable[[Any], str], workers: int
) -> list[Any]:
    """Return tests in the order in which they are to be collected.

    Args:
        items: The tests.
        is_slow: Whether a test's module has slow ones.
        room_of: The folder of a test: what a room shares, such as a JupyterLab, is started by one worker.
        workers: How many workers there are.
    """
    rooms: dict[str, list[Any]] = {}
    for item in items:
        if is_slow(item):
            rooms.setdefault(room_of(item), []).append(item)
    slow: list[list[Any]] = [[] for _ in range(workers)]
    for room in sorted(rooms.values(), key=len, reverse=True):
        min(slow, key=len).extend(room)
    quick = [item for item in items if not is_slow(item)]
    order: list[Any] = []
    for number, begun in enumerate(slow):
        more = max(0, (len(items) - len(order)) // (workers - number) - len(begun))  # the run that the worker is given
        order += begun + quick[:more]
        quick = quick[more:]
    return order + quick
