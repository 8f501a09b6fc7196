"""The ReLU or Clip that remains in front of a QuantizeLinear, where ONNX Runtime then forms no integer kernel.

The runtime removes it where the pair represents no value that it would change: 0 must be the lowest integer of the
pair, and the highest one must stand for no more than the maximum of a Clip. Otherwise it stays, with floats in front.
The result of a ReLU has such a range wherever the range is observed, unless the grid is symmetric; a fixed range and
one that other tensors share may be wider (`tests/runtimes/test_remaining_clips.py`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from qdq_workbench.graph.activations import maximum_of
from qdq_workbench.graph.never_negative import ceiling, is_never_negative
from qdq_workbench.placement.targets import get_target
from qdq_workbench.runtimes.facts import PlanFacts
from qdq_workbench.runtimes.fixed_ranges import fixed_ends, steps_below_zero
from qdq_workbench.runtimes.inner_layers import own_activation
from qdq_workbench.runtimes.judge_layers import Verdict
from qdq_workbench.runtimes.propagation import Range, propagation_of

_CLIPPING = get_target("onnxruntime").fused_activations


def why_remains(facts: PlanFacts, tensor: str) -> Verdict | None:
    """Return the verdict on a ReLU that remains in front of the pair on its result, and on what is in front of it.

    None without a ReLU, without one pair behind it, and where the pair makes it unnecessary.
    """
    node = facts.graph.producer(tensor)
    activation = own_activation(node)
    scale = propagation_of(facts).pair_behind(tensor)
    if activation not in _CLIPPING or scale is None:
        return None
    found, maximum = propagation_of(facts).range_of(scale), maximum_of(node, activation)
    others = [name for name in found.tensors if name != tensor]  # that share the range, or hold the values further on
    if not _starts_at_zero(facts, found, others):
        return _below_zero(facts, found, others, tensor)
    if maximum < math.inf and not _ends_within(facts, found, others, maximum):
        reason = f"the pair on {tensor!r} represents values above {maximum:g}, so the Clip in front of it remains"
        return "RELU", reason, [f"let the range of {tensor!r} end at {maximum:g}"]
    return None


def _below_zero(facts: PlanFacts, found: Range, others: Sequence[str], tensor: str) -> Verdict:
    reason = f"0 is not the lowest integer of the pair on {tensor!r}, so the ReLU in front of it remains"
    negative = [name for name in others if not is_never_negative(facts.graph, name)]
    if found.grid.symmetric:
        help_ = f'set {{"symmetric": False}} in the quantizer settings of {tensor!r}'
    elif fixed_ends(found.method) is None and negative:
        help_ = f"let {tensor!r} have a range of its own, without {negative[0]!r}, which may be negative"
    else:
        help_ = f"let the range of {tensor!r} begin at 0"
    return "RELU", reason, [help_]


def _starts_at_zero(facts: PlanFacts, found: Range, others: Sequence[str]) -> bool:
    if found.grid.symmetric:
        return False
    ends = fixed_ends(found.method)
    if ends is None:
        return all(is_never_negative(facts.graph, name) for name in others)
    return steps_below_zero(found.grid, ends) == 0


def _ends_within(facts: PlanFacts, found: Range, others: Sequence[str], maximum: float) -> bool:
    ends, steps = fixed_ends(found.method), found.grid.qmax - found.grid.qmin
    if ends is None:
        return all(ceiling(facts.graph, name) <= maximum for name in others)
    above = steps - steps_below_zero(found.grid, ends)
    return ends[0] == ends[1] or round(maximum / (ends[1] - ends[0]) * steps) >= above
