"""Placements that a search tries: each is built and measured once, and remembered in the checkpoint."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import pathlib
from collections.abc import Callable, Mapping
from typing import Any, cast

import keras

from qdq_workbench._documents import read_document
from qdq_workbench._files import check_place, write_text
from qdq_workbench._progress import ProgressFunction
from qdq_workbench._scratch import scratch_folder
from qdq_workbench.analysis.levels import FLOAT, Level, raise_layers
from qdq_workbench.analysis.search_goal import Goal
from qdq_workbench.analysis.search_result import SearchStep, cost_of
from qdq_workbench.analysis.search_switches import SwitchedTrials
from qdq_workbench.conversion.engine.quantized_model import QuantizedModel
from qdq_workbench.conversion.engine.retarget import replan
from qdq_workbench.conversion.engine.strip import strip
from qdq_workbench.errors import CheckpointError
from qdq_workbench.export.onnx_export import export_onnx
from qdq_workbench.placement.plan import PlacementPlan
from qdq_workbench.profiling.latency import LatencyReport
from qdq_workbench.profiling.profile_onnx import profile_onnx

_FORMAT = "qdq-workbench/search-checkpoint"
#: Gives a model its value of the metric; the float model beside it.
Judge = Callable[[keras.Model, keras.Model | None], float]
_ROUNDS = 8


@dataclasses.dataclass(frozen=True)
class Known:
    """What was measured, by placement; kept in the checkpoint.

    Args:
        accuracies: The metric on the samples of the search, of built models.
        switched: The same, measured by switches in one copy of the model.
        times: Milliseconds per run.
        confirmed: The metric on the held-out samples.
        groups: Layers that share kernels, those first that gain least by INT8.
        again: Means of the first and a second time.
    """

    accuracies: dict[str, float] = dataclasses.field(default_factory=dict)
    switched: dict[str, float] = dataclasses.field(default_factory=dict)
    times: dict[str, float] = dataclasses.field(default_factory=dict)
    confirmed: dict[str, float] = dataclasses.field(default_factory=dict)
    groups: list[list[str]] = dataclasses.field(default_factory=list)
    again: dict[str, float] = dataclasses.field(default_factory=dict)

    @classmethod
    def read(cls, path: str | pathlib.Path | None, mark: str) -> Known:
        """Return what a checkpoint holds; nothing where there is none.

        Args:
            path: The file, or None.
            mark: The fingerprint of the search.

        Raises:
            CheckpointError: If it is of another search, or no checkpoint.
        """
        if path is None or not check_place(path).exists():
            return cls()

        def build(data: Any) -> Known:
            if not isinstance(data, dict) or data.get("format") != _FORMAT or data.get("fingerprint") != mark:
                raise CheckpointError(
                    "The file to resume from is of another search, or of an earlier version: the model, its weights or "
                    "ranges, the plan, the data, the calibration data, the metric or the settings differ. Delete the "
                    f"file, or give another path. Received: checkpoint={str(path)!r}"
                )
            times, confirmed, groups = data.get("times", {}), data.get("confirmed", {}), data.get("groups", [])
            return cls(
                _numbers(data["accuracies"]),
                _numbers(data.get("switched", {})),
                _numbers(times),
                _numbers(confirmed),
                [[str(layer) for layer in group] for group in groups],
                _numbers(data.get("again", {})),
            )

        return read_document(
            path, build, what="checkpoint of a search", made_by="search(checkpoint=)", error=CheckpointError
        )


def _key(levels: Mapping[str, Level]) -> str:
    """Return a placement's name in the checkpoint."""
    return json.dumps(dict(sorted((layer, level) for layer, level in levels.items() if level is not None)))


def _numbers(found: Mapping[str, Any]) -> dict[str, float]:
    return {str(key): float(value) for key, value in found.items()}


class Stopwatch:
    """Times the files of placements, each in turns with the file of the plan as it was given.

    Args:
        q_model: The model of that plan.
        threads: Threads within a kernel; None for ONNX Runtime's own choice.
        data: Inputs, of which the first sample is used.
    """

    def __init__(self, q_model: QuantizedModel, threads: int | None, data: Any) -> None:
        self._q_model, self._threads, self._data = q_model, threads, data
        self._scratch = contextlib.ExitStack()
        self._folder = self._scratch.enter_context(scratch_folder())
        self._reference = self._folder / "reference.onnx"
        self._reference_ms: float | None = None

    def close(self) -> None:
        """Remove the files."""
        self._scratch.close()

    def ms(self, model: QuantizedModel) -> float:
        """Return the milliseconds per run of a model's file.

        The machine's speed drifts: what counts is the ratio to the reference in the same rounds, times the
        reference's first time.

        Args:
            model: The model.
        """
        report = self.profile(model)
        beside = cast("LatencyReport", report.baseline)  # `profile` asks for one
        if self._reference_ms is None:
            self._reference_ms = beside.total_ms
        return self._reference_ms * report.total_ms / beside.total_ms

    def profile(self, model: QuantizedModel) -> LatencyReport:
        """Return the times of a model's file beside the reference.

        Args:
            model: The model.
        """
        if not self._reference.exists():
            export_onnx(self._q_model, self._reference)
        path = self._folder / "trial.onnx"
        export_onnx(model, path)
        return profile_onnx(path, self._data, threads=self._threads, rounds=_ROUNDS, baseline=self._reference)


class Trials:
    """Builds and measures placements, each once, and remembers them in the checkpoint.

    Args:
        q_model: The calibrated model of the plan as it was given.
        judge: The metric on the samples of the search.
        goal: What has to be reached.
        known: What a checkpoint knows.
        show: Shows progress.
        checkpoint: The file, or None.
        mark: The fingerprint of the search.
        stopwatch: Times files, where times are asked for.
        switched: Measures placements without building them, where that can be.
    """

    def __init__(
        self,
        q_model: QuantizedModel,
        judge: Judge,
        goal: Goal,
        known: Known,
        show: ProgressFunction,
        checkpoint: str | pathlib.Path | None,
        mark: str,
        stopwatch: Stopwatch | None,
        switched: SwitchedTrials | None,
    ) -> None:
        self.q_model = q_model
        self.goal = goal
        self.steps: list[SearchStep] = []
        self.expected = 1
        self.stopwatch = stopwatch
        self.float_model = strip(q_model)
        self._judge = judge
        self._known = known
        self._show = show
        self._checkpoint = checkpoint
        self._mark = mark
        self._switched = switched
        self._by_levels: dict[str, SearchStep] = {}
        # The last ones are kept: a step asks for accuracy, cost and time of one placement.
        self._planned: tuple[str, PlacementPlan] | None = None
        self._built: tuple[str, QuantizedModel] | None = None

    def of_float(self) -> float:
        """Return the metric of the float model."""
        return self._measured(self._known.accuracies, FLOAT, lambda: self._judge(self.float_model, self.float_model))

    def confirmed(self, levels: Mapping[str, Level] | None, judge: Judge) -> float:
        """Return the metric of a placement on held-out samples.

        Args:
            levels: The raised layers; None for the float model.
            judge: The metric on those samples.
        """
        key = FLOAT if levels is None else _key(levels)
        return self._measured(
            self._known.confirmed,
            key,
            lambda: judge(self.float_model if levels is None else self._model_of(levels), self.float_model),
        )

    def plan(self, levels: Mapping[str, Level]) -> PlacementPlan:
        """Return the plan of a placement.

        Args:
            levels: The raised layers.
        """
        key = _key(levels)
        if self._planned is None or self._planned[0] != key:
            raised = {layer: level for layer, level in levels.items() if level is not None}
            self._planned = key, raise_layers(self.q_model.plan, raised) if raised else self.q_model.plan
        return self._planned[1]

    def model(self, levels: Mapping[str, Level]) -> QuantizedModel:
        """Return the model of a placement.

        Args:
            levels: The raised layers.
        """
        return replan(self.q_model, self.plan(levels))

    def of(self, levels: Mapping[str, Level]) -> SearchStep:
        """Return the step of a placement, measuring it if it is new. It is timed only where nothing else fails.

        Args:
            levels: The raised layers.
        """
        raised: dict[str, Level] = {layer: level for layer, level in sorted(levels.items()) if level is not None}
        key = _key(raised)
        if key not in self._by_levels:
            step = self._step(raised, self._accuracy(raised))
            self._by_levels[key] = step
            self.steps.append(step)
            self._show(len(self.steps), max(self.expected, len(self.steps)), f"{step.accuracy:.4f}")
        return self._by_levels[key]

    def built(self, step: SearchStep) -> SearchStep:
        """Return a step as its own model has it, where it was measured by switches.

        Args:
            step: One of the steps, which is replaced.
        """
        accuracy = self._accuracy_of_model(step.levels)
        if accuracy == step.accuracy:
            return step
        renewed = self._step(step.levels, accuracy)
        self.steps[self.steps.index(step)] = renewed
        self._by_levels[_key(step.levels)] = renewed
        return renewed

    def best_built(self) -> SearchStep:
        """Return the best step as its own model has it."""
        while (step := self.goal.best(self.steps)) is not self.built(step):
            pass
        return step

    def _step(self, raised: Mapping[str, Level], accuracy: float) -> SearchStep:
        weight_bytes, float_macs = cost_of(self.plan(raised))
        meets, ms = self.goal.is_accurate(accuracy) and self.goal.is_small(weight_bytes), None
        watch = self.stopwatch
        if meets and watch is not None:
            ms = self._measured(self._known.times, _key(raised), lambda: watch.ms(self._model_of(raised)))
            meets = self.goal.is_fast(ms)
        return SearchStep(raised, accuracy, weight_bytes, float_macs, meets, ms)

    def _accuracy(self, raised: Mapping[str, Level]) -> float:
        """Return the metric of a placement: by switches where it can be told so and its model was not yet run."""
        key = _key(raised)
        if self._switched is not None and key not in self._known.accuracies and key not in self._known.switched:
            found = self._switched.measure(self.plan(raised))
            if found is not None:
                return self._measured(self._known.switched, key, lambda: found)
        known = self._known.accuracies.get(key, self._known.switched.get(key))
        return self._accuracy_of_model(raised) if known is None else known

    def _accuracy_of_model(self, raised: Mapping[str, Level]) -> float:
        measure = self._judge
        return self._measured(
            self._known.accuracies, _key(raised), lambda: measure(self._model_of(raised), self.float_model)
        )

    def _model_of(self, levels: Mapping[str, Level]) -> QuantizedModel:
        """Return the model of a placement."""
        key = _key(levels)
        if self._built is None or self._built[0] != key:
            self._built = (key, self.model(levels))
        return self._built[1]

    def time_again(self, step: SearchStep) -> None:
        """Time a placement once more, and take the mean of both times.

        Args:
            step: One of the steps, which is replaced.
        """
        key, watch = _key(step.levels), self.stopwatch
        if watch is None or step.ms is None:
            return
        first = step.ms
        ms = self._measured(self._known.again, key, lambda: (first + watch.ms(self._model_of(step.levels))) / 2.0)
        renewed = dataclasses.replace(step, ms=ms, meets=self.goal.is_fast(ms))
        self.steps[self.steps.index(step)] = renewed
        self._by_levels[key] = renewed

    def least_gaining(self, levels: Mapping[str, Level]) -> list[list[str]]:
        """Return the layers that share kernels, those first whose kernels gain least by INT8, as a profile says.

        Args:
            levels: A placement in float, beside which the plan's file is profiled.
        """
        if not self._known.groups and self.stopwatch is not None:
            # Of the file in float, with the plan's own as its baseline: what that one takes longer for comes first.
            gains = self.stopwatch.profile(self.model(levels)).gains
            ordered = sorted(gains, key=lambda gain: gain.ms - gain.baseline_ms)
            self._known.groups.extend(list(gain.layers) for gain in ordered)
            self._write()
        return self._known.groups

    def _measured(self, known: dict[str, float], key: str, measure: Callable[[], float]) -> float:
        if key not in known:
            known[key] = measure()
            self._write()
        return known[key]

    def _write(self) -> None:
        if self._checkpoint is not None:
            data = {"format": _FORMAT, "version": 1, "fingerprint": self._mark, **dataclasses.asdict(self._known)}
            write_text(self._checkpoint, json.dumps(data, indent=2) + "\n")
