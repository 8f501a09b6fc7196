"""The comparing half of the bench: named variants, what they score, and how two of them differ."""

from __future__ import annotations

from typing import Any

from qdq_widgets.background import Job
from qdq_widgets.curves import Curves
from qdq_widgets.errors import BenchError
from qdq_widgets.history import Step
from qdq_widgets.search_bench import SearchBench
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

    def keep_variant(self, name: str) -> Variant:
        """Give the present state a name, to compare it with others and to come back to it.

        Args:
            name: The name; an earlier variant of that name is replaced.
        """
        if not name.strip():
            raise BenchError(f"A variant needs a name. Received: name={name!r}")
        self._variants[name] = self._variant(name, self.state, self.plan)
        self._tell("variants")
        return self._variants[name]

    def measure_variants(self, *, batch_size: int = 32) -> tuple[Variant, ...]:
        """Score every variant on the validation data, and write a file of each to see its size.

        What is known already is not measured again. Variants that were not fine-tuned here are measured with the
        ranges of the last calibration.

        Args:
            batch_size: Samples per batch of an array.
        """
        if not self._variants:
            raise BenchError("There is no variant yet. Keep the present state under a name: wb.keep_variant('first')")
        with self._jobs.run("measuring the variants") as job:
            if self._work.can_score() and self._curves.fp32 is None:
                self._score(self.plan, job, batch_size)
            for number, variant in enumerate(tuple(self._variants.values())):
                job.report(number / len(self._variants), variant.name)
                plan = self._planner.plan(variant.state)
                self._work.measure(plan, job, batch_size)
                if job.stop_requested:
                    break
                self._variants[variant.name] = self._variant(variant.name, variant.state, plan)
                self._tell("variants")
        return self.variants

    def show_variant(self, name: str) -> Step:
        """Go to the state of a variant.

        Args:
            name: Its name.
        """
        return self._change(f"variant {name}", self._state_of(name))

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

    def _variant(self, name: str, state: BenchState, plan: Any) -> Variant:
        models, metric = self._work.models, self._curves.metric
        scores = models.scores(plan)
        accuracy = scores.metrics.get(metric) if scores else None
        return Variant(
            name,
            state,
            len(plan.tensors),
            *coverage(plan),
            metric,
            accuracy,
            models.size(plan),
            models.stage(plan),
            int8_share(plan),
        )

    def _score(self, plan: Any, job: Job, batch_size: int) -> Curves:
        self._curves = self._work.score(plan, job, self._curves, batch_size)
        self._tell("curves")
        return self._curves
