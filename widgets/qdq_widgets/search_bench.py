"""The searching half of the bench: the cheapest placement that is accurate enough, and taking it over."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import qdq_workbench as qdq
from qdq_widgets.errors import BenchError
from qdq_widgets.history import Step
from qdq_widgets.metric_bench import MetricBench, decided
from qdq_widgets.settings import configured
from qdq_widgets.state import BenchState


class SearchBench(MetricBench):
    """Mixed precision by `qdq_workbench.search`; a part of `Workbench`."""

    _search: tuple[BenchState, qdq.SearchResult] | None = None

    @property
    def search_result(self) -> qdq.SearchResult | None:
        """What `search` found last, a `SearchResult`; None before."""
        return None if self._search is None else self._search[1]

    def search(
        self,
        accuracy_floor: float,
        *,
        weight_bits: int | None = None,
        bits: Sequence[int] = (8,),
        metric: Any = "accuracy",
        samples: int = 512,
        **settings: Any,
    ) -> qdq.SearchResult:
        """Find the cheapest placement whose accuracy on the validation data reaches a floor; nothing is applied yet.

        Args:
            accuracy_floor: What the metric has to reach, such as 0.9.
            weight_bits: How many bits the quantized weights of the present plan start with; None for those they have.
            bits: What layers with fewer bits are raised to before they are left in float.
            metric: As for `qdq_workbench.search`: one of which more is better.
            samples: How many samples to read at most, where the data are arrays.
            **settings: Further arguments of `qdq_workbench.search`, such as `checkpoint`.

        Returns:
            The `SearchResult`, which `apply_search` takes over.
        """
        state, plan = self.state, self.plan
        if weight_bits is not None:
            layers = [layer for layer in decided(plan) if plan.for_layer(layer).quantize_weight]
            if not layers:
                raise BenchError(f"The present plan quantizes no weights. Received: weight_bits={weight_bits!r}")
            state, plan = configured(self._planner, state, plan, layers, "weight", {"num_bits": weight_bits})
        with self._jobs.run("search") as job:
            options = {"accuracy_floor": accuracy_floor, "bits": bits, "metric": metric, "spec": state.spec}
            found = self._work.search(plan, job, samples, {**options, **settings})
        self._search = (state, found)
        self._tell("search")
        return found

    def apply_search(self) -> Step:
        """Take over the placement that `search` found: one undoable step, an entry in the spec per raised layer.

        It belongs to the cases, mode and target that were searched with, so these come back too.
        """
        if self._search is None:
            raise BenchError("Nothing was searched yet. Find a placement: wb.search(accuracy_floor=0.9)")
        state, found = self._search
        what = f"searched placement, {found.metric} {found.accuracy:.4g}"
        return self._change(what, state.replace(spec=found.spec.copy()))
