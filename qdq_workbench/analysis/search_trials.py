"""Placements that a search tries: each is built and measured once, and remembered in the checkpoint."""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable, Iterable, Mapping

from qdq_workbench._progress import ProgressFunction
from qdq_workbench.analysis.levels import FLOAT, Level, raise_layers
from qdq_workbench.analysis.search_goal import Goal
from qdq_workbench.analysis.search_judge import Judge
from qdq_workbench.analysis.search_known import SECONDS, Known, key_of
from qdq_workbench.analysis.search_result import SearchStep, cost_of
from qdq_workbench.analysis.search_starts import Start
from qdq_workbench.analysis.search_stopwatch import Stopwatch
from qdq_workbench.analysis.search_switches import SwitchedTrials
from qdq_workbench.analysis.search_workers import Answer, ParallelMeasurer, Request, first_unknown
from qdq_workbench.conversion.engine.quantized_model import QuantizedModel
from qdq_workbench.conversion.engine.retarget import replan
from qdq_workbench.conversion.engine.strip import strip
from qdq_workbench.placement.plan import PlacementPlan


class Measured:
    """The measurements of a model's placements, of all starts together.

    Args:
        q_model: The calibrated model of the given plan.
        judge: The metric on the samples of the search.
        goal: The constraints and the objective.
        known: The measurements that the checkpoint holds.
        show: Shows progress.
        stopwatch: Times files; None if the goal needs no times.
        ahead: Measures placements in workers; None if they are measured in this process alone.
    """

    def __init__(
        self,
        q_model: QuantizedModel,
        judge: Judge,
        goal: Goal,
        known: Known,
        show: ProgressFunction,
        stopwatch: Stopwatch | None,
        ahead: ParallelMeasurer | None = None,
    ) -> None:
        self.q_model, self.judge, self.goal = q_model, judge, goal
        self.known, self.show, self.stopwatch, self._ahead = known, show, stopwatch, ahead
        self.steps: list[SearchStep] = []
        self.by_key: dict[str, SearchStep] = {}
        self.expected = 1
        self.float_model = strip(q_model)

    def of_float(self) -> float:
        """Return the metric of the float model."""
        known = self.known
        return known.once(known.accuracies, FLOAT, lambda: self.judge(self.float_model, self.float_model))

    def float_confirmed(self, judge: Judge) -> float:
        """Return the metric of the float model on held-out samples."""
        return self.known.once(self.known.confirmed, FLOAT, lambda: judge(self.float_model, self.float_model))

    def prefetch(self, likely: Iterable[tuple[Trials, Mapping[str, Level]]]) -> None:
        """Let workers, if there are several, measure the accuracies that are likely to be needed, the next one first.

        Nothing is measured if the first one is known, else at most one placement per worker.
        """
        ahead = self._ahead
        if ahead is None or ahead.width < 2:
            return
        asked = first_unknown((trials.request(levels) for trials, levels in likely), ahead.width)
        if asked:
            ahead.measure(asked, self._learn)

    def _learn(self, key: str, answer: Answer) -> None:
        known = self.known
        known.once(known.switched if answer.by_switches else known.accuracies, key, lambda: answer.accuracy)

    def add(self, key: str, step: SearchStep) -> SearchStep:
        """Store a new step under its key in the checkpoint, and show it."""
        self.by_key[key] = step
        self.steps.append(step)
        self.show(len(self.steps), max(self.expected, len(self.steps)), f"{step.accuracy:.4f}")
        return step

    def replace(self, key: str, step: SearchStep) -> SearchStep:
        """Replace the step of a placement, which has the same key in the checkpoint."""
        self.steps[self.steps.index(self.by_key[key])] = step
        self.by_key[key] = step
        return step


class Trials:
    """Builds and measures placements that start from one plan, each once.

    Args:
        measured: The measurements; trials of all starts share it.
        start: The plan whose layers are brought to other levels.
        switches: Returns the `SwitchedTrials` of a plan; None to build the model of every placement.
    """

    def __init__(
        self, measured: Measured, start: Start, switches: Callable[[PlacementPlan], SwitchedTrials] | None
    ) -> None:
        self.measured, self.start = measured, start
        # Set by `Moves`; until then every layer is decided about alone.
        self.groups: Mapping[str, tuple[str, ...]] | None = None
        self._switches = switches
        self._switched: SwitchedTrials | None = None
        # The last ones are kept: a step asks for accuracy, cost and time of one placement.
        self._planned: tuple[str, PlacementPlan] | None = None
        self._built: tuple[str, QuantizedModel] | None = None

    @property
    def base(self) -> PlacementPlan:
        """The plan that the levels change."""
        return self.start.plan

    @property
    def goal(self) -> Goal:
        """The constraints and the objective."""
        return self.measured.goal

    @property
    def steps(self) -> list[SearchStep]:
        """The steps from this start, in the order in which they were tried."""
        return [step for step in self.measured.steps if step.case == self.start.name]

    def expect(self, more: int) -> None:
        """Set the expected total of trials, for the progress, to those done and `more`."""
        self.measured.expected = len(self.measured.steps) + more

    def confirmed(self, levels: Mapping[str, Level], judge: Judge) -> float:
        """Return the metric of a placement on held-out samples."""
        known, model = self.measured.known, self.measured.float_model
        return known.once(known.confirmed, self._key(levels), lambda: judge(self._model_of(levels), model))

    def plan(self, levels: Mapping[str, Level]) -> PlacementPlan:
        """Return the plan of a placement."""
        raised, key = self._raised(levels), self._key(levels)
        if self._planned is None or self._planned[0] != key:
            self._planned = key, raise_layers(self.base, raised) if raised else self.base
        return self._planned[1]

    def model(self, levels: Mapping[str, Level]) -> QuantizedModel:
        """Return the model of a placement."""
        return replan(self.measured.q_model, self.plan(levels))

    def of(self, levels: Mapping[str, Level]) -> SearchStep:
        """Return the step of a placement, measured if it is new, and timed only if it meets all other constraints."""
        key = self._key(levels)
        if key not in self.measured.by_key:
            raised = self._raised(levels)
            self.measured.add(key, self._step(raised, self._accuracy(raised)))
        return self.measured.by_key[key]

    def request(self, levels: Mapping[str, Level]) -> Request | None:
        """Return the request by which a worker measures a placement; None if its accuracy is known."""
        key, known = self._key(levels), self.measured.known
        if key in known.accuracies or key in known.switched:
            return None
        return Request(key, self.base, self.plan(levels), by_switches=bool(self._switches and self._raised(levels)))

    def built(self, step: SearchStep) -> SearchStep:
        """Return the step with the accuracy of its built model, which replaces one that was measured by switches."""
        accuracy = self._accuracy_of_model(step.levels)
        # NaN differs from itself: without the second condition, `confirm` would replace the step forever.
        if accuracy == step.accuracy or (math.isnan(accuracy) and math.isnan(step.accuracy)):
            return step
        return self.measured.replace(self._key(step.levels), self._step(step.levels, accuracy))

    def time_again(self, step: SearchStep) -> SearchStep:
        """Time a placement again, in more rounds, and replace its time: the first time is biased by the choice."""
        key, watch, known = self._key(step.levels), self.measured.stopwatch, self.measured.known
        # A step that has its second time already is not replaced, so that `confirm` ends.
        if watch is None or step.ms is None or known.again.get(key) == step.ms:
            return step
        ms = known.once(known.again, key, lambda: watch.ms(self._model_of(step.levels), longer=True))
        return self.measured.replace(key, self._judged(dataclasses.replace(step, ms=ms)))

    def forget_switches(self) -> None:
        """Free the memory of the copy of the model with switches."""
        self._switched = None

    def seconds(self, levels: Mapping[str, Level]) -> float:
        """Return how long it takes to build and time the file of a placement, measured once per search."""
        known, watch = self.measured.known, self.measured.stopwatch

        def measure() -> float:
            start = time.perf_counter()
            if watch is not None:
                watch.ms(self.model(levels))
            return time.perf_counter() - start

        # From the checkpoint, so that a resumed search goes the same way.
        return known.once(known.times, SECONDS, measure)

    def least_gaining(self, levels: Mapping[str, Level]) -> list[tuple[list[str], float]]:
        """Return the groups of layers that share kernels, and the milliseconds that each gains from INT8: least first.

        It profiles the placement with all layers in float, `levels`, beside the file of the given plan.
        """
        known, watch = self.measured.known, self.measured.stopwatch
        if not known.groups and watch is not None:
            # Profiles the float file with the quantized one as its baseline: layers slower quantized come first.
            gains = watch.profile(self.model(levels)).gains
            ordered = sorted(gains, key=lambda gain: gain.ms - gain.baseline_ms)
            known.groups.extend(list(gain.layers) for gain in ordered)
            known.gains.extend(gain.ms - gain.baseline_ms for gain in ordered)
            known.write()
        return list(zip(known.groups, known.gains, strict=True))

    def _raised(self, levels: Mapping[str, Level]) -> dict[str, Level]:
        """Return the levels of all layers: all members of a group take the level of its first layer."""
        groups = self.groups
        if groups is None:
            chosen = dict(levels)
        else:
            chosen = {member: levels[first] for first in levels if first in groups for member in groups[first]}
        return {layer: level for layer, level in sorted(chosen.items()) if level is not None}

    def _key(self, levels: Mapping[str, Level]) -> str:
        return key_of(self._raised(levels), self.start.key)

    def _step(self, raised: Mapping[str, Level], accuracy: float) -> SearchStep:
        weight_bytes, float_macs = cost_of(self.plan(raised))
        step = SearchStep(dict(raised), accuracy, weight_bytes, float_macs, meets=False, case=self.start.name)
        watch, known, key = self.measured.stopwatch, self.measured.known, self._key(raised)
        if watch is not None and self.goal.is_accurate(accuracy) and self.goal.is_small(weight_bytes):
            ms = known.once(known.times, key, lambda: watch.ms(self._model_of(raised)))
            # A new step has its first time even if a checkpoint knows the second: a resumed search goes the same way.
            step = dataclasses.replace(step, ms=known.again.get(key, ms) if key in self.measured.by_key else ms)
        return self._judged(step)

    def _judged(self, step: SearchStep) -> SearchStep:
        return dataclasses.replace(step, meets=self.goal.is_met(step))

    def _accuracy(self, raised: Mapping[str, Level]) -> float:
        """Return the metric of a placement: the known one, else by switches if possible, else of its built model."""
        key, known = self._key(raised), self.measured.known
        if self._switches is not None and raised and key not in known.accuracies and key not in known.switched:
            self._switched = self._switched or self._switches(self.base)
            found = self._switched.measure(self.plan(raised))
            if found is not None:
                return known.once(known.switched, key, lambda: found)
        # The accuracy of a built model takes precedence.
        value = known.accuracies.get(key, known.switched.get(key))
        return self._accuracy_of_model(raised) if value is None else value

    def _accuracy_of_model(self, raised: Mapping[str, Level]) -> float:
        known, judge = self.measured.known, self.measured.judge
        return known.once(
            known.accuracies, self._key(raised), lambda: judge(self._model_of(raised), self.measured.float_model)
        )

    def _model_of(self, levels: Mapping[str, Level]) -> QuantizedModel:
        """Return the model of a placement."""
        key = self._key(levels)
        if self._built is None or self._built[0] != key:
            self._built = (key, self.model(levels))
        return self._built[1]
