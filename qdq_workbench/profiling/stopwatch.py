"""Runs files in turns, with and without a runtime's profiler, and subtracts the overhead of the profiler."""

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
# The profiler's overhead per input of a kernel, relative to that of a kernel without inputs: 0.2 of 5.4 microseconds,
# measured on chains of 60 Max of two and of nine inputs (ONNX Runtime 1.32).
_PER_INPUT = 0.04


@dataclasses.dataclass(frozen=True)
class Times:
    """The measured times of one file.

    Args:
        turns: Seconds of every call without the profiler; one inner tuple per turn.
        kernels: Microseconds of every kernel, by name: one value per call with the profiler.
    """

    turns: tuple[tuple[float, ...], ...]
    kernels: Mapping[str, tuple[float, ...]]

    @property
    def seconds(self) -> list[float]:
        """The seconds of all calls without the profiler, sorted."""
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
        """Run calls that do not count: the first ones have cold caches and allocate memory."""
        calls(self.run, _PLAIN_SECONDS)
        self.forget(len(calls(self.run_profiled, _PROFILED_SECONDS)))

    def turn(self) -> None:
        """Run one turn without the profiler and one with it, each for its time."""
        self._turns.append(self.plain_turn())
        calls(self.run_profiled, _PROFILED_SECONDS)
        safe_point()

    def plain_turn(self) -> tuple[float, ...]:
        """Return the seconds of the calls of a turn without the profiler, which is not added to the times."""
        return tuple(calls(self.run, _PLAIN_SECONDS))

    def times(self) -> Times:
        """Return the measured times; the runner cannot be used any more."""
        return Times(tuple(self._turns), self.profile())

    @abc.abstractmethod
    def run(self) -> None:
        """Run the file once, without the profiler."""

    @abc.abstractmethod
    def run_profiled(self) -> None:
        """Run the file once with the profiler."""

    @abc.abstractmethod
    def forget(self, count: int) -> None:
        """Leave the first `count` calls with the profiler out of the profile."""

    @abc.abstractmethod
    def profile(self) -> dict[str, tuple[float, ...]]:
        """Return the microseconds of every kernel, by name, one value per call; call it once, at the end."""

    @abc.abstractmethod
    def kernels(self, file: onnx.ModelProto) -> list[Kernel]:
        """Return the kernels that the runtime executes, in their order; the nodes of the file have unique names."""


def measure(
    runners: Sequence[Runner],
    rounds: int,
    progress: Callable[[int, int, str], object] | None = None,
    stop: Callable[[], bool] | None = None,
) -> tuple[list[Times], list[tuple[float, ...]]]:
    """Return the times of files that run in turns, and further turns of the first file.

    In every round the first file has a second turn without the profiler: the difference between its two turns is noise.
    `progress` gets the rounds done, their total, and "rounds"; `stop` is called after every round.
    """
    again: list[tuple[float, ...]] = []
    for runner in runners:
        runner.warm_up()
    for number in range(rounds):
        # Alternating, so that a drift of the machine's speed favours no file.
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
    """Return the times of kernels without the profiler's overhead, and that overhead for a kernel with one input.

    The profiler records the shapes of inputs and outputs while a kernel is timed, which is most of the reported time of
    small kernels and depends on the machine and the graph. The overhead is chosen so that the corrected times of all
    kernels and `outside` add up to `run`, the time of a run without the profiler in the unit of `told`. It grows with
    the number of inputs.
    """
    weights = [1.0 + _PER_INPUT * count for count in inputs]

    def left(cost: float) -> list[float]:
        return [max(0.0, one - cost * weight) for one, weight in zip(told, weights, strict=True)]

    # Kernels are cut off at 0, so that the sum is not linear in the cost. But it only falls, so bisection finds the
    # cost; 60 halvings exhaust a float.
    low, high = 0.0, max(told, default=0.0)
    for _ in range(60):
        middle_cost = (low + high) / 2
        low, high = (middle_cost, high) if sum(left(middle_cost)) > run - outside else (low, middle_cost)
    return left(low), low * (1 + _PER_INPUT)


def calls(run: Callable[[], object], seconds: float) -> list[float]:
    """Return the seconds of each call of `run`, repeated for `seconds` and at least three times."""
    found: list[float] = []
    until = time.perf_counter() + seconds
    while len(found) < _LEAST_CALLS or time.perf_counter() < until:
        found.append(seconds_of(run))
    return found


def seconds_of(run: Callable[[], object]) -> float:
    """Return the seconds of one call."""
    started = time.perf_counter()
    run()
    return time.perf_counter() - started


def middle(values: Sequence[float]) -> float:
    """Return the mean of the middle half: as robust as a median, and finer than the profiler's whole microseconds."""
    ordered = sorted(values)
    cut = len(ordered) // 4
    return statistics.fmean(ordered[cut : len(ordered) - cut])


def median_interval(values: Sequence[float]) -> tuple[float, float]:
    """Return the 95 % interval of the median by order statistics; of fewer than six values the extremes."""
    # The number of values below the median is binomial with p = 1/2: values are cut off at both ends while the median
    # lies outside of the rest with a probability of at most 5 %.
    ordered, count = sorted(values), len(values)
    outside, cut = 0.0, 0
    while cut < count // 2:
        outside += 2 * math.comb(count, cut) / 2**count
        if outside > 0.05:
            break
        cut += 1
    cut = max(cut, 1)
    return ordered[cut - 1], ordered[count - cut]
