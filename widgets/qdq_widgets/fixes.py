"""Fixes of an explanation as changes of the specification.

A fix only adds pairs: the pairs, bits and quantizers that the user chose for the layer stay.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Any

import qdq_workbench as qdq
from qdq_widgets import toggles
from qdq_widgets.state import BenchState, Planner, plan_key

_ROUNDS = 10


def fixed(planner: Planner, state: BenchState, plan: Any, entries: Iterable[Any]) -> tuple[BenchState, Any]:
    """Return the state and the plan with the fixes of some `LayerExplanation` objects."""
    wishes: dict[str, toggles.LayerWish] = {}
    for fix in (fix for entry in entries for fix in entry.fix):
        # A fix holds arguments of `QuantizationSpec.add`, whose defaults `_merged` takes for those left out.
        name = fix["name"]
        node = planner.graph.calls(name)[0]
        usual = planner.usual_inputs(node, plan.target)
        wishes[name] = _merged(wishes.get(name, toggles.wish_of(plan, node)), node, fix, usual)
    return toggles.with_wishes(planner, state, plan, wishes)


def all_fixed(planner: Planner, state: BenchState, plan: Any) -> tuple[BenchState, Any]:
    """Return the state and the plan with the fixes of all layers.

    A fix may require another one, or make it unnecessary: layers with weights come first, then layers with several
    inputs, then the rest, and every round explains the new plan.
    """
    for _ in range(_ROUNDS):
        open_fixes = [entry for entry in qdq.explain(plan, target=plan.target).layers if entry.fix]
        ranks = {entry.layer: _rank(planner.graph.calls(entry.layer)[0]) for entry in open_fixes}
        for rank in sorted(set(ranks.values())):  # the first rank whose fixes change the plan
            chosen = [entry for entry in open_fixes if ranks[entry.layer] == rank]
            after, after_plan = fixed(planner, state, plan, chosen)
            if plan_key(after_plan) != plan_key(plan):
                state, plan = after, after_plan
                break
        else:
            break
    return state, plan


def _merged(wish: toggles.LayerWish, node: Any, fix: Any, usual: Iterable[int]) -> toggles.LayerWish:
    inputs = set(wish.inputs)
    if fix.get("quantize_input", True):
        indices = fix.get("quantization_index")
        inputs |= set(usual if indices is None else indices)
    return dataclasses.replace(
        wish,
        inputs=tuple(sorted(inputs)),
        weight=wish.weight or (bool(node.weights) and fix.get("quantize_weight", True)),
        output=wish.output or fix.get("quantize_output", False),
    )


def _rank(node: Any) -> int:
    if node.weights:
        return 0
    return 1 if len(node.inputs) > 1 else 2
