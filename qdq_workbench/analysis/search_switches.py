"""Measures placements in one switched copy of the model, which is built and traced once."""

from __future__ import annotations

import dataclasses

from qdq_workbench.analysis.metrics import Metric
from qdq_workbench.analysis.samples import Samples
from qdq_workbench.analysis.switches import Grids, Switch
from qdq_workbench.analysis.workers import Measurer, Task
from qdq_workbench.conversion.engine.quantized_model import QuantizedModel
from qdq_workbench.placement.placement import Placement
from qdq_workbench.placement.plan import PlacementPlan
from qdq_workbench.spec.quantizer_spec import QuantizerSpec


class SwitchedTrials:
    """Measures placements by switches, if a placement is a subset of the plan's pairs with other grids of weights.

    Args:
        q_model: The calibrated model of the plan; it is only read.
        samples: The data.
        metric: The metric.
    """

    def __init__(self, q_model: QuantizedModel, samples: Samples, metric: Metric) -> None:
        self._q_model, self._samples = q_model, samples
        self._metric = metric
        self._measurer: Measurer | None = None

    def measure(self, plan: PlacementPlan) -> float | None:
        """Return the metric of a placement; None if it can be measured only by building its model."""
        base = self._q_model.plan
        choice = switches_of(base, plan)
        # The model of the base plan exists, so it is measured itself.
        if choice is None or plan.placements == base.placements:
            return None
        if self._measurer is None:
            everything = frozenset((placement.layer, placement.site) for placement in base.placements)
            self._measurer = Measurer(self._q_model, self._samples, Task(self._metric, everything))
        on, grids = choice
        return self._measurer.measure(on, grids) if on <= set(self._measurer.sweep.switches) else None


def switches_of(base: PlacementPlan, plan: PlacementPlan) -> tuple[frozenset[Switch], Grids] | None:
    """Return the switches of `base` that `plan` keeps, and the grids that it changes; None if anything else differs."""
    wanted = {_place(placement): placement for placement in plan.placements}
    on: set[Switch] = set()
    off: set[Switch] = set()
    changed: set[str] = set()
    found = 0
    for placement in base.placements:
        own = wanted.get(_place(placement))
        found += own is not None
        if own is None:
            # A switch serves all inputs, or all weights, of a layer: it cannot keep some of them.
            off.add((placement.layer, placement.site))
            continue
        on.add((placement.layer, placement.site))
        if own.quantizer != placement.quantizer:
            changed.add(own.layer)
    # The range of a scale group covers all its tensors, so a group with other members has another range.
    groups, before = _groups(plan), _groups(base)
    if found < len(wanted) or on & off or any(before.get(name) != members for name, members in groups.items()):
        return None
    # With all weights of these layers, because `SwitchedCopy.set` switches their quantizers off.
    grids: dict[str, dict[str, QuantizerSpec]] = {layer: {} for layer in changed}
    for placement in plan.placements:
        if placement.layer in changed and placement.site == "weight":
            # Only the default method takes the range from the values alone; others keep a state of their own.
            if placement.weight is None or placement.method is not None:
                return None
            grids[placement.layer][placement.weight] = placement.quantizer
    return frozenset(on), grids


def _place(placement: Placement) -> Placement:
    """Return the placement without its author and reason, and without the grid of a weight."""
    quantizer = QuantizerSpec() if placement.site == "weight" else placement.quantizer
    return dataclasses.replace(placement, author="", reason="", replaced=(), quantizer=quantizer)


def _groups(plan: PlacementPlan) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for placement in plan.placements:
        if placement.scale_group is not None:
            found.setdefault(placement.scale_group, set()).add(placement.tensor)
    return found
