"""Runs files in turns, with and without ONNX Runtime's profiler, and takes off what the profiler itself adds."""

from __future__ import annotations

import dataclasses
import json
import math
import pathlib
import statistics
import time
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper

from qdq_workbench._interrupts import safe_point
from qdq_workbench.onnx_graph.sessions import open_session, run_once

_PLAIN_SECONDS, _PROFILED_SECONDS, _LEAST_CALLS = 0.02, 0.01, 3
_OUTSIDE_CALLS = 200
# What one more input adds to the profiler's cost of a kernel without inputs: 0.2 of 5.4 microseconds, on chains of 60
# Max of two and of nine inputs (ONNX Runtime 1.32).
_PER_INPUT = 0.04


@dataclasses.dataclass(frozen=True)
class Times:
    """What was measured of one file.

    Args:
        turns: Seconds per call of every turn without the profiler: the calls of one round.
        kernels: Microseconds of every kernel, by name: one value per call with the profiler.
        optimized: The graph that ONNX Runtime executed.
    """

    turns: tuple[tuple[float, ...], ...]
    kernels: Mapping[str, tuple[float, ...]]
    optimized: onnx.ModelProto

    @property
    def seconds(self) -> list[float]:
        """All calls without the profiler, sorted."""
        return sorted(second for turn in self.turns for second in turn)


class Runner:
    """One file, open with the profiler and without.

    Args:
        model: Path of the file, or its contents.
        feed: One batch, by name of the input.
        threads: Threads within a kernel; None for ONNX Runtime's own choice.
        folder: A folder for temporary files, this runner's own.
    """

    def __init__(
        self,
        model: str | bytes,
        feed: Mapping[str, np.ndarray],
        threads: int | None,
        folder: pathlib.Path,
    ) -> None:
        self._feed = dict(feed)
        self._optimized = folder / "optimized.onnx"
        self._plain = open_session(model, _options(threads))
        options = _options(threads)
        options.enable_profiling = True
        options.profile_file_prefix = str(folder / "profile")
        options.optimized_model_filepath = str(self._optimized)
        options.add_session_config_entry("session.optimized_model_external_initializers_file_name", "weights.bin")
        options.add_session_config_entry("session.optimized_model_external_initializers_min_size_in_bytes", "1024")
        self._profiled = open_session(model, options)
        self._names = [output.name for output in self._plain.get_outputs()]
        self._turns: list[tuple[float, ...]] = []
        self._warm_up = 0

    def warm_up(self) -> None:
        """Run what does not count: the first calls find cold caches and no memory."""
        self._calls(self._plain, _PLAIN_SECONDS)
        self._warm_up = len(self._calls(self._profiled, _PROFILED_SECONDS))

    def turn(self) -> None:
        """Run as often as a turn lasts, without the profiler and then with it."""
        self._turns.append(self.plain_turn())
        self._calls(self._profiled, _PROFILED_SECONDS)
        safe_point()

    def plain_turn(self) -> tuple[float, ...]:
        """Return the seconds of the calls of one more turn without the profiler, which is not among the times."""
        return tuple(self._calls(self._plain, _PLAIN_SECONDS))

    def times(self) -> Times:
        """Return what was measured; the runner cannot be used any more."""
        graph = onnx.load(self._optimized, load_external_data=False)
        names = {node.name or node.op_type for node in graph.graph.node}
        kernels: dict[str, list[float]] = {name: [] for name in names}
        written = pathlib.Path(self._profiled.end_profiling())
        for event in json.loads(written.read_text(encoding="utf-8")):
            name = event["name"].removesuffix("_kernel_time")
            if event["cat"] == "Node" and name in kernels:
                kernels[name].append(float(event["dur"]))
        counted = {name: tuple(values[self._warm_up :]) for name, values in kernels.items()}
        return Times(tuple(self._turns), counted, graph)

    def _calls(self, session: onnxruntime.InferenceSession, seconds: float) -> list[float]:
        found: list[float] = []
        until = time.perf_counter() + seconds
        while len(found) < _LEAST_CALLS or time.perf_counter() < until:
            found.append(_call(session, self._names, self._feed))
        return found


def measure(
    runners: Sequence[Runner],
    rounds: int,
    progress: Callable[[int, int, str], object] | None = None,
    stop: Callable[[], bool] | None = None,
) -> tuple[list[Times], list[tuple[float, ...]]]:
    """Return the times of some files that take turns, and the turns of the first one beside itself.

    In every round the first file has a second turn, at the other end of the round: what these two differ by is noise.

    Args:
        runners: The files.
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


def outside_cost(feed: Mapping[str, np.ndarray], threads: int | None) -> float:
    """Return the seconds of a run that no kernel takes: the run of a file with these inputs that computes nothing.

    Args:
        feed: One batch, by name of the input.
        threads: Threads within a kernel; None for ONNX Runtime's own choice.
    """
    kinds = {name: helper.np_dtype_to_tensor_dtype(value.dtype) for name, value in feed.items()}
    inputs = [helper.make_tensor_value_info(name, kinds[name], value.shape) for name, value in feed.items()]
    first, rank = next(iter(feed)), np.ndim(next(iter(feed.values())))
    outputs = [helper.make_tensor_value_info("size", TensorProto.INT64, [rank])]
    graph = helper.make_graph([helper.make_node("Shape", [first], ["size"])], "outside", inputs, outputs)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    session = open_session(model.SerializeToString(), _options(threads))
    calls = [_call(session, ["size"], feed) for _ in range(_OUTSIDE_CALLS)]
    return statistics.median(calls)


def _call(session: onnxruntime.InferenceSession, names: list[str], feed: Mapping[str, np.ndarray]) -> float:
    started = time.perf_counter()
    run_once(session, names, feed)
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


def _options(threads: int | None) -> onnxruntime.SessionOptions:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4  # what goes wrong becomes a named error
    if threads is not None:
        options.intra_op_num_threads = threads
    # Else the threads of one session spin on for a while and take the cores from the session whose turn is next.
    options.add_session_config_entry("session.force_spinning_stop", "1")
    return options
