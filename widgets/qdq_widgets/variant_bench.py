"""The comparing half of the bench: named variants, what they score, and how two of them differ."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

from qdq_widgets.background import Job
from qdq_widgets.curves import Curves
from qdq_widgets.errors import BenchError, BenchStoppedError
from qdq_widgets.history import Aside, Step
from qdq_widgets.search_bench import SearchBench
from qdq_widgets.snapshots import CALIBRATED, Snapshot
from qdq_widgets.state import BenchState
from qdq_widgets.variants import Variant, coverage, int8_share


class VariantBench(SearchBench):
    """Named states of a bench; a part of `Workbench`, which makes `_curves` and knows how to score."""

    _curves: Curves
    _variants: dict[str, Variant]

    @property
    def variants(self) -> tuple[Variant, ...]:
        """The named variants, oldest first."""
        return tuple(self._variants.values())

    def evaluate(self, *, batch_size: int = 32) -> Curves:
        """Score the float model and the calibrated model on the validation data.

        Args:
            batch_size: Samples per batch of an array.

        Returns:
            The curves; as they were before, where the evaluation was stopped.
        """
        plan = self.plan
        self._work.models.get(plan)
        with self._jobs.run("evaluation") as job:
            return self._score_unless_stopped(plan, job, batch_size)

    def keep_variant(self, name: str) -> Variant:
        """Give the present state a name, to compare it with others and to come back to it.

        All work on the state is kept with it, as it is now: ranges, weights, scores, stage and file. Weights are kept
        by reference; training makes new ones.

        Args:
            name: The name; an earlier variant of that name is replaced.
        """
        if not name.strip():
            raise BenchError(f"A variant needs a name. Received: name={name!r}")
        with self._lock:
            work = self._work.models.snapshot(self.plan)
            self._variants[name] = self._variant(name, self.state, self.plan, work)
        self._tell("variants")
        return self._variants[name]

    def measure_variants(self, *, batch_size: int = 32) -> tuple[Variant, ...]:
        """Score every variant on the validation data, and write a file of each to see its size.

        What is known already is not measured again. Each is measured with the ranges and weights that it was kept with;
        one that was kept before there were ranges takes those of the last calibration.

        Args:
            batch_size: Samples per batch of an array.
        """
        if not self._variants:
            raise BenchError("There is no variant yet. Keep the present state under a name: wb.keep_variant('first')")
        with self._jobs.run("measuring the variants") as job:
            if self._work.can_score() and self._curves.fp32 is None:
                self._score_unless_stopped(self.plan, job, batch_size)
            for number, variant in enumerate(tuple(self._variants.values())):
                job.report(number / len(self._variants), variant.name)
                if variant.stage != variant.work.stage:
                    continue  # of a folder of an earlier version, which kept no weights of variants
                plan = self._planner.plan(variant.state)
                try:
                    work = self._work.measure(plan, variant.work, job, batch_size)
                except BenchStoppedError:
                    break
                self._variants[variant.name] = self._variant(variant.name, variant.state, plan, work)
                self._tell("variants")
        return self.variants

    def show_variant(self, name: str) -> Step:
        """Go to a variant: its plan, ranges, weights, scores, stage and file; undo brings back what was before.

        Args:
            name: Its name.
        """
        state = self._state_of(name)
        with self._jobs.run("going to a variant"), self._lock:
            plan, models = self._planner.plan(state), self._work.models
            aside = Aside(models.put_aside())
            models.restore(plan, self._variants[name].work)
            step = self._history.push(f"variant {name}", state, plan, aside)
        self._tell_exchanged()
        return step

    def compare(self, first: str, second: str | None = None) -> Any:
        """Return how two plans differ, pair by pair.

        Args:
            first: Name of a variant.
            second: Name of another one; None for the present state.

        Returns:
            The `PlanDiff` that leads from the first to the second.

        Example:
            `wb.compare("all int8", "head in float").removed`
        """
        after = self.plan if second is None else self._planner.plan(self._state_of(second))
        return self._planner.plan(self._state_of(first)).diff(after)

    def _state_of(self, name: str) -> BenchState:
        if name not in self._variants:
            raise BenchError(f"There is no such variant. Known: {sorted(self._variants)}. Received: name={name!r}")
        return self._variants[name].state

    def _walk(self, move: Callable[[], Step]) -> Step:
        """Walking over a step that went to a variant exchanges the models of its two sides."""
        with self._lock:
            start = self._history.position
            move()
            end = self._history.position
            asides = [step.aside for step in self._history.between(start, end) if step.aside is not None]
            self._history.go_to(start)
            if not asides:
                return super()._walk(lambda: self._history.go_to(end))
            with self._jobs.run("going to a variant"):
                for aside in asides:
                    aside.contents = self._work.models.swap(aside.contents)
                step = self._history.go_to(end)
        self._tell_exchanged()
        return step

    def _tell_exchanged(self) -> None:
        scores = self._work.models.scores(self.plan, CALIBRATED)
        if scores is not None:
            self._curves = self._curves.replace(ptq=scores)
        for event in ("plan", "calibration", "stage", "curves"):
            self._tell(event)

    def _variant(self, name: str, state: BenchState, plan: Any, work: Snapshot) -> Variant:
        metric = self._curves.metric
        accuracy = work.score.metrics.get(metric) if work.score else None
        return Variant(
            name,
            state,
            len(plan.tensors),
            *coverage(plan),
            metric,
            accuracy,
            work.size,
            work.stage,
            int8_share(plan),
            work,
        )

    def _score(self, plan: Any, job: Job, batch_size: int) -> Curves:
        self._curves = self._work.score(plan, job, self._curves, batch_size)
        self._tell("curves")
        return self._curves

    def _score_unless_stopped(self, plan: Any, job: Job, batch_size: int) -> Curves:
        with contextlib.suppress(BenchStoppedError):
            self._score(plan, job, batch_size)
        return self._curves
