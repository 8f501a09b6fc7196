"""Placements that a search tries: each is built and measured once, and remembered in the checkpoint."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping

from qdq_workbench._progress import ProgressFunction
from qdq_workbench.analysis.levels import FLOAT, Level, raise_layers
from qdq_workbench.analysis.search_goal import Goal
from qdq_workbench.analysis.search_judge import Judge
from qdq_workbench.analysis.search_known import Known, key_of
from qdq_workbench.analysis.search_result import SearchStep, cost_of
from qdq_workbench.analysis.search_starts import Start
from qdq_workbench.analysis.search_stopwatch import Stopwatch
from qdq_workbench.analysis.search_switches import SwitchedTrials
from qdq_workbench.analysis.search_workers import Ahead, Answer, Asked, first_unknown
from qdq_workbench.conversion.engine.quantized_model import QuantizedModel
from qdq_workbench.conversion.engine.retarget import replan
from qdq_workbench.conversion.engine.strip import strip
from qdq_workbench.placement.plan import PlacementPlan


class Measured:
    """What was measured of a model's placements, whatever they start from.

    Args:
        q_model: The calibrated model of the plan as it was given.
        judge: The metric on the samples of the search.
        goal: What has to be reached.
        known: What a checkpoint knows.
        show: Shows progress.
        stopwatch: Times files, where times are asked for.
        ahead: Measures placements in workers; None where only this process can.
    """

    def __init__(
        self,
        q_model: QuantizedModel,
        judge: Judge,
        goal: Goal,
        known: Known,
        show: ProgressFunction,
        stopwatch: Stopwatch | None,
        ahead: Ahead | None = None,
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
        """Return the metric of the float model on held-out samples.

        Args:
            judge: The metric on those samples.
        """
        return self.known.once(self.known.confirmed, FLOAT, lambda: judge(self.float_model, self.float_model))

    def foresee(self, likely: Iterable[tuple[Trials, Mapping[str, Level]]]) -> None:
        """Let workers measure the accuracies that are likely to be asked for, where there are several workers.

        Args:
            likely: The trials of a start and the layers at other levels, the next one first. Only as many are read as
                there are workers, and none where the first one is known.
        """
        ahead = self._ahead
        if ahead is None or ahead.width < 2:
            return
        asked = first_unknown((trials.asked(levels) for trials, levels in likely), ahead.width)
        if asked:
            ahead.measure(asked, self._learn)

    def _learn(self, key: str, answer: Answer) -> None:
        known = self.known
        known.once(known.switched if answer.by_switches else known.accuracies, key, lambda: answer.accuracy)

    def add(self, key: str, step: SearchStep) -> SearchStep:
        """Keep a new step, and show it.

        Args:
            key: Its name in the checkpoint.
            step: The step.
        """
        self.by_key[key] = step
        self.steps.append(step)
        self.show(len(self.steps), max(self.expected, len(self.steps)), f"{step.accuracy:.4f}")
        return step

    def replace(self, key: str, step: SearchStep) -> SearchStep:
        """Keep a step in place of what was measured of its placement before.

        Args:
            key: Its name in the checkpoint.
            step: The step.
        """
        self.steps[self.steps.index(self.by_key[key])] = step
        self.by_key[key] = step
        return step


class Trials:
    """Builds and measures placements that start from one plan, each once.

    Args:
        measured: What was measured; trials of all starts share it.
        start: The plan that layers' levels change.
        switches: Returns what measures placements without building them, where that can be.
    """

    def __init__(
        self, measured: Measured, start: Start, switches: Callable[[PlacementPlan], SwitchedTrials] | None
    ) -> None:
        self.measured, self.start = measured, start
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
        """What has to be reached."""
        return self.measured.goal

    @property
    def steps(self) -> list[SearchStep]:
        """What was tried from this start, in order."""
        return [step for step in self.measured.steps if step.case == self.start.name]

    def expect(self, more: int) -> None:
        """Expect so many further trials, for the progress.

        Args:
            more: How many.
        """
        self.measured.expected = len(self.measured.steps) + more

    def confirmed(self, levels: Mapping[str, Level], judge: Judge) -> float:
        """Return the metric of a placement on held-out samples.

        Args:
            levels: The layers at other levels.
            judge: The metric on those samples.
        """
        known, model = self.measured.known, self.measured.float_model
        return known.once(known.confirmed, self._key(levels), lambda: judge(self._model_of(levels), model))

    def plan(self, levels: Mapping[str, Level]) -> PlacementPlan:
        """Return the plan of a placement.

        Args:
            levels: The layers at other levels.
        """
        raised, key = self._raised(levels), self._key(levels)
        if self._planned is None or self._planned[0] != key:
            self._planned = key, raise_layers(self.base, raised) if raised else self.base
        return self._planned[1]

    def model(self, levels: Mapping[str, Level]) -> QuantizedModel:
        """Return the model of a placement.

        Args:
            levels: The layers at other levels.
        """
        return replan(self.measured.q_model, self.plan(levels))

    def of(self, levels: Mapping[str, Level]) -> SearchStep:
        """Return the step of a placement, measuring it if it is new. It is timed only where nothing else fails.

        Args:
            levels: The layers at other levels.
        """
        key = self._key(levels)
        if key not in self.measured.by_key:
            raised = self._raised(levels)
            self.measured.add(key, self._step(raised, self._accuracy(raised)))
        return self.measured.by_key[key]

    def asked(self, levels: Mapping[str, Level]) -> Asked | None:
        """Return a placement for workers to measure; None where its accuracy is known.

        Args:
            levels: The layers at other levels.
        """
        key, known = self._key(levels), self.measured.known
        if key in known.accuracies or key in known.switched:
            return None
        return Asked(key, self.base, self.plan(levels), by_switches=bool(self._switches and self._raised(levels)))

    def built(self, step: SearchStep) -> SearchStep:
        """Return a step as its own model has it, where it was measured by switches.

        Args:
            step: One of the steps, which is replaced.
        """
        accuracy = self._accuracy_of_model(step.levels)
        if accuracy == step.accuracy:
            return step
        return self.measured.replace(self._key(step.levels), self._step(step.levels, accuracy))

    def time_again(self, step: SearchStep) -> SearchStep:
        """Time a placement once more, for longer; only that time counts, because a first one chose the placement.

        Args:
            step: One of the steps, which is replaced.
        """
        key, watch, known = self._key(step.levels), self.measured.stopwatch, self.measured.known
        if watch is None or step.ms is None or known.again.get(key) == step.ms:
            return step
        ms = known.once(known.again, key, lambda: watch.ms(self._model_of(step.levels), longer=True))
        return self.measured.replace(key, self._judged(dataclasses.replace(step, ms=ms)))

    def forget_switches(self) -> None:
        """Free the memory of the copy of the model with switches."""
        self._switched = None

    def least_gaining(self, levels: Mapping[str, Level]) -> list[list[str]]:
        """Return the layers that share kernels, those first whose kernels gain least by INT8, as a profile says.

        Args:
            levels: A placement in float, beside which the file of the plan as it was given is profiled.
        """
        known, watch = self.measured.known, self.measured.stopwatch
        if not known.groups and watch is not None:
            # Of the file in float, with the plan's own as its baseline: what that one takes longer for comes first.
            gains = watch.profile(self.model(levels)).gains
            ordered = sorted(gains, key=lambda gain: gain.ms - gain.baseline_ms)
            known.groups.extend(list(gain.layers) for gain in ordered)
            known.write()
        return known.groups

    def _raised(self, levels: Mapping[str, Level]) -> dict[str, Level]:
        """Return the levels of all layers: what a group's first layer takes, the others of the group take too."""
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
            step = dataclasses.replace(step, ms=known.again.get(key, ms) if key in self.measured.by_key else ms)
        return self._judged(step)

    def _judged(self, step: SearchStep) -> SearchStep:
        return dataclasses.replace(step, meets=self.goal.is_met(step))

    def _accuracy(self, raised: Mapping[str, Level]) -> float:
        """Return the metric of a placement: by switches where it can be told so and its model was not yet run."""
        key, known = self._key(raised), self.measured.known
        if self._switches is not None and raised and key not in known.accuracies and key not in known.switched:
            self._switched = self._switched or self._switches(self.base)
            found = self._switched.measure(self.plan(raised))
            if found is not None:
                return known.once(known.switched, key, lambda: found)
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
