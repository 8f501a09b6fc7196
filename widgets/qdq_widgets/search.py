"""Search in a bench: the cheapest placement that is accurate enough, and applying it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import qdq_workbench as qdq
from qdq_widgets.data import few_pairs, fit_arguments
from qdq_widgets.errors import BenchError
from qdq_widgets.events import Events
from qdq_widgets.history import Step
from qdq_widgets.plans import Plans
from qdq_widgets.settings import configured
from qdq_widgets.state import BenchState, decided
from qdq_widgets.work import Workshop


class Search:
    """Mixed precision by `qdq_workbench.search`; a part of `Workbench`.

    Attributes:
        result: The last result; None before the first.
    """

    def __init__(self, plans: Plans, work: Workshop, events: Events) -> None:
        self._plans, self._work, self._events = plans, work, events
        self._start: BenchState | None = None
        self.result: qdq.SearchResult | None = None

    def search(
        self,
        /,
        accuracy_floor: float | None = None,
        *,
        weight_bits: int | None = None,
        bits: Sequence[int] = (8,),
        metric: Any = "accuracy",
        samples: int = 512,
        **settings: Any,
    ) -> qdq.SearchResult:
        """Find the best placement under budgets, on the validation data; nothing is applied yet.

        Args:
            accuracy_floor: The minimum of the metric, such as 0.9; None for no minimum.
            weight_bits: Width of the quantized weights at the start; None for their widths in the present plan.
            bits: Widths to which layers with fewer bits are raised, before they are left in float.
            metric: As for `qdq_workbench.search`; higher values must be better.
            samples: Maximum number of samples to read, if the data are arrays.
            **settings: Further arguments of `qdq_workbench.search`, such as `objective`, `max_ms` or `checkpoint`.

        Returns:
            The `SearchResult`, which `apply_search` applies.

        Raises:
            BenchError: If there are no labelled validation data, or `weight_bits` is given and the plan quantizes no
                weights.
        """
        state, plan, data = self._plans.state, self._plans.plan, self._work.data.validation
        if weight_bits is not None:
            layers = [layer for layer in decided(plan) if plan.for_layer(layer).quantize_weight]
            if not layers:
                raise BenchError(f"The present plan quantizes no weights. Received: weight_bits={weight_bits!r}")
            state, plan = configured(self._plans.planner, state, plan, layers, "weight", {"num_bits": weight_bits})
        with self._work.jobs.run("search") as job:
            # For its error, before the model is built.
            fit_arguments(data, "validation_data")
            model, how = self._work.swept(plan, job, samples)
            options = {"accuracy_floor": accuracy_floor, "bits": bits, "metric": metric, "spec": state.spec}
            found = qdq.search(model, few_pairs(data, samples), **how, **{**options, **settings})
        self._start, self.result = state, found
        self._events.tell("search")
        return found

    def apply_search(self) -> Step:
        """Apply the placement of the last `search`: one undoable step with an entry in the spec per raised layer.

        The cases, mode and target of the search are restored too, since the placement belongs to them.

        Raises:
            BenchError: If nothing was searched yet.
        """
        found, start = self.result, self._start
        if found is None or start is None:
            raise BenchError("Nothing was searched yet. Find a placement: wb.search(accuracy_floor=0.9)")
        what = f"searched placement, {found.metric} {found.accuracy:.4g}"
        return self._plans.change(what, start.replace(spec=found.spec.copy()))
