"""Scale, zero point and range of the pairs of a plan, for the graph and the inspector."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import qdq_workbench as qdq

Range = tuple[float, float]


def known_ranges(bench: Any) -> dict[str, Range]:
    """Return the known ranges of the present plan, by name of the pair or its tensor."""
    work = bench.snapshot
    if work.stage == "planned":
        return {}
    # The model's own ranges: training may have moved them.
    if work.model is not None:
        return dict(work.model.activation_ranges())
    ranges = work.calibration.ranges
    groups: dict[str, Range] = {}
    for tensor in bench.plan.tensors:  # tensors of one scale have one range, which holds all of theirs
        if tensor.scale_group is not None and tensor.tensor in ranges:
            low, high = groups.get(tensor.scale_group, ranges[tensor.tensor])
            groups[tensor.scale_group] = (min(low, ranges[tensor.tensor][0]), max(high, ranges[tensor.tensor][1]))
    shared = {tensor.name: groups[tensor.scale_group] for tensor in bench.plan.tensors if tensor.scale_group in groups}
    return {**ranges, **shared}


def grid_values(plan: qdq.PlacementPlan, ranges: Mapping[str, Range]) -> dict[str, list[str]]:
    """Return the grid values of the pairs on activation tensors, by tensor and in the order of the plan.

    Each pair has a text such as `scale 0.0418, zero point -7, range -5.04 to 5.62`, empty without a known range;
    tensors without any known range are absent. Ranges are by name of the pair or its tensor, such as
    `CalibrationResult.ranges`.
    """
    found: dict[str, list[str]] = {}
    for tensor in plan.tensors:
        if tensor.kind != "activation":
            continue
        known = ranges.get(tensor.name) or ranges.get(tensor.tensor)
        text = "" if known is None else _grid_value(tensor.quantizer, (float(known[0]), float(known[1])))
        found.setdefault(tensor.tensor, []).append(text)
    return {name: texts for name, texts in found.items() if any(texts)}


@functools.lru_cache(maxsize=4096)
def _grid_value(quantizer: Any, known: Range) -> str:
    """Return the text of one pair; cached, since every click needs all pairs and changes few."""
    grid = qdq.numerics.qparams_from_range(*known, quantizer)
    low, high = (float(end) for end in grid.representable_range)
    return f"scale {float(grid.scale):.3g}, zero point {int(grid.zero_point)}, range {low:.3g} to {high:.3g}"
