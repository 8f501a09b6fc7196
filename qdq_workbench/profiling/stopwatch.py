"""Runs files in turns, with and without a runtime's profiler, and takes off what the profiler itself adds."""

from __future__ import annotations

import abc
import dataclasses
import math
import statistics
import time
from collections.abc import Callable, Mapping, Sequence

import onnx

from qdq_workbench._interrupts import safe_point
from qdq_workbench.profiling.kernels import Kernel

_PLAIN_SECONDS, _PROFILED_SECONDS, _LEAST_CALLS = 0.02, 0.01, 3
# What one more input adds to the profiler's cost of a kernel without inputs: 0.2 of 5.4 microseconds, on chains of 60
# Max of two and of nine inputs (ONNX Runtime 1.32).
_PER_INPUT = 0.04


@dataclasses.dataclass(frozen=True)
class Times:
    """What was measured of one file.

    Args:
        turns: Seconds per call of every turn without the profiler: the calls of one round.
        kernels: Microseconds of every kernel, by name: one value per call with the profiler.
    """

    turns: tuple[tuple[float, ...], ...]
    kernels: Mapping[str, tuple[float, ...]]

    @property
    def seconds(self) -> list[float]:
        """All calls without the profiler, sorted."""
        return sorted(second for turn in self.turns for second in turn)


class Runner(abc.ABC):
    """One file, open in a runtime with its profiler and without.

    Attributes:
        engine: Name of the runtime.
        version: Its version.
    """

    engine: str
    version: str

    def __init__(self) -> None:
        self._turns: list[tuple[float, ...]] = []

    def warm_up(self) -> None:
        """Run what does not count: the first calls find cold caches and no memory."""
        calls(self.run, _PLAIN_SECONDS)
        self.forget(len(calls(self.run_profiled, _PROFILED_SECONDS)))

    def turn(self) -> None:
        """Run as often as a turn lasts, without the profiler and then with it."""
        self._turns.append(self.plain_turn())
        calls(self.run_profiled, _PROFILED_SECONDS)
        safe_point()

    def plain_turn(self) -> tuple[float, ...]:
        """Return the seconds of the calls of one more turn without the profiler, which is not among the times."""
        return tuple(calls(self.run, _PLAIN_SECONDS))

    def times(self) -> Times:
        """Return what was measured; the runner cannot be used any more."""
        return Times(tuple(self._turns), self.profile())

    @abc.abstractmethod
    def run(self) -> None:
        """Run the file once, without the profiler."""

    @abc.abstractmethod
    def run_profiled(self) -> None:
        """Run the file once with the profiler."""

    @abc.abstractmethod
    def forget(self, count: int) -> None:
        """Leave the first calls with the profiler out of the profile.

        Args:
            count: How many.
        """

    @abc.abstractmethod
    def profile(self) -> dict[str, tuple[float, ...]]:
        """Return the microseconds of every kernel, by name, one value per call; the runner's last act."""

    @abc.abstractmethod
    def kernels(self, file: onnx.ModelProto) -> list[Kernel]:
        """Return the kernels that the runtime executes, in their order.

        Args:
            file: The file, with a name of its own for every node.
        """


def measure(
    runners: Sequence[Runner],
    rounds: int,
    progress: Callable[[int, int, str], object] | None = None,
    stop: Callable[[], bool] | None = None,
) -> tuple[list[Times], list[tuple[float, ...]]]:
    """Return the times of some files that take turns, and the turns of the first one beside itself.

    In every round the first file has a second turn, at the other end of the round: what these two differ by is noise.

    Args:
        runners: The files, each open in a runtime.
        rounds: How many turns each has.
        progress: Called after every round with how many there were, how many there will be, and what is done.
        stop: Asked after every round whether to end with those that there were.
    """
    again: list[tuple[float, ...]] = []
    for runner in runners:
        runner.warm_up()
    for number in range(rounds):
        order = list(runners) if number % 2 == 0 else list(reversed(runners))
        for runner in order:
            runner.turn()
        again.append(runners[0].plain_turn())
        if progress is not None:
            progress(number + 1, rounds, "rounds")
        if stop is not None and stop():
            break
    return [runner.times() for runner in runners], again


def without_profiler(
    told: Sequence[float], inputs: Sequence[int], run: float, outside: float
) -> tuple[list[float], float]:
    """Return the times of kernels without what the profiler adds to each, and how much that is for one input.

    The profiler writes down the shapes of inputs and outputs while a kernel's clock is running, which is most of what
    it tells of small kernels. How long that takes depends on the machine and the graph. But it adds nothing to a run
    without it, so it follows from that: it is what has to be taken off every kernel for the kernels to add up to the
    run. More inputs take longer, by the share that was measured on chains of kernels that compute nothing.

    Args:
        told: What the profiler told of each kernel, in any unit.
        inputs: How many inputs each has.
        run: The run without the profiler, in the same unit.
        outside: What of that passes outside the kernels.
    """
    weights = [1.0 + _PER_INPUT * count for count in inputs]

    def left(cost: float) -> list[float]:
        return [max(0.0, one - cost * weight) for one, weight in zip(told, weights, strict=True)]

    low, high = 0.0, max(told, default=0.0)
    for _ in range(60):
        middle_cost = (low + high) / 2
        low, high = (middle_cost, high) if sum(left(middle_cost)) > run - outside else (low, middle_cost)
    return left(low), low * (1 + _PER_INPUT)


def calls(run: Callable[[], object], seconds: float) -> list[float]:
    """Return the seconds of each of some calls, as many as fill a time, and a few at least.

    Args:
        run: What is called.
        seconds: The time to fill.
    """
    found: list[float] = []
    until = time.perf_counter() + seconds
    while len(found) < _LEAST_CALLS or time.perf_counter() < until:
        found.append(seconds_of(run))
    return found


def seconds_of(run: Callable[[], object]) -> float:
    """Return the seconds of one call.

    Args:
        run: What is called.
    """
    started = time.perf_counter()
    run()
    return time.perf_counter() - started


def middle(values: Sequence[float]) -> float:
    """Return the mean of the middle half: steady as a median, and finer than the profiler's whole microseconds.

    Args:
        values: At least one value.
    """
    ordered = sorted(values)
    cut = len(ordered) // 4
    return statistics.fmean(ordered[cut : len(ordered) - cut])


def median_interval(values: Sequence[float]) -> tuple[float, float]:
    """Return the 95 % interval of the median, from the order of the values alone; the ends where there are under six.

    Args:
        values: At least one value.
    """
    ordered, count = sorted(values), len(values)
    outside, cut = 0.0, 0
    while cut < count // 2:
        outside += 2 * math.comb(count, cut) / 2**count
        if outside > 0.05:
            break
        cut += 1
    cut = max(cut, 1)
    return ordered[cut - 1], ordered[count - cut]
