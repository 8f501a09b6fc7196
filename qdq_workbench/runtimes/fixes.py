"""Turns the fixes of an explanation into a specification."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Collection, Iterator, Sequence
from typing import Any

from qdq_workbench.graph.kinds import MERGES
from qdq_workbench.graph.model_graph import Node
from qdq_workbench.placement.decide import decide
from qdq_workbench.placement.decision import Decision
from qdq_workbench.placement.defaults import find_default
from qdq_workbench.placement.plan import PlacementPlan
from qdq_workbench.placement.planner import make_plan
from qdq_workbench.placement.settings import EVERY_WEIGHT
from qdq_workbench.runtimes.rule_sets import layer_explanations
from qdq_workbench.runtimes.verdict import Fix, LayerExplanation
from qdq_workbench.spec.quantization_spec import QuantizationSpec
from qdq_workbench.spec.quantize_config import LayerQuantizeConfig

_ROUNDS = 10
_NOTHING = Decision((), quantize_weight=False, quantize_output=False, author="default", reason="")


def apply_fixes(plan: PlacementPlan, layers: Sequence[LayerExplanation], opset: int | None = None) -> QuantizationSpec:
    """Return the specification of a plan with all fixes of its layers; see `Explanation.apply_fixes`."""
    mode, wishes = plan.mode, _wishes(plan)
    for _ in range(_ROUNDS):
        # Fixing a layer with weights may fix layers behind it too, so those come first, then merges, then the rest.
        # `any` stops at the first rank that changes something, and the plan is made anew before the next one.
        if not any(_apply(wishes, layers, plan, rank) for rank in range(3)):
            break
        decisions = decide(plan.graph, mode, _spec_of(wishes), [])
        # A specification has no overrides, but the verdicts depend on them.
        kept = {name: decision.overrides for name, decision in plan.decisions.items() if decision.overrides}
        decisions.update(
            {name: dataclasses.replace(decisions.get(name) or _NOTHING, overrides=how) for name, how in kept.items()}
        )
        plan = make_plan(plan.graph, decisions, mode, plan.target_object)
        layers = layer_explanations(plan, opset)
    return _spec_of(wishes)


def leave_in_float(plan: PlacementPlan, layers: Collection[str]) -> QuantizationSpec:
    """Return the specification of a plan with some layers in float."""
    wishes = _wishes(plan)
    for layer in layers:
        for node in _nodes(plan, layer):
            if node.name in plan.decisions and node.inputs:
                wishes[node.name] = _wish(_NOTHING)
    return _spec_of(wishes)


def _apply(
    wishes: dict[str, dict[str, Any]], layers: Sequence[LayerExplanation], plan: PlacementPlan, rank: int
) -> bool:
    """Apply the fixes of the layers of one rank; return whether any of them changes the wishes."""
    # Deep, because `_merge` changes the sets of indices in place.
    before = copy.deepcopy(wishes)
    for entry in layers:
        if _rank(plan.graph.calls(entry.layer)[0]) == rank:
            for fix in entry.fix:
                _merge(wishes, plan, fix)
    return wishes != before


def _rank(node: Node) -> int:
    default = find_default(node)
    if default is not None and default.weights:
        return 0
    return 1 if node.is_a(*MERGES) else 2


def _wishes(plan: PlacementPlan) -> dict[str, dict[str, Any]]:
    """Return the decisions of specification and cases, as arguments of `QuantizationSpec.add` per call."""
    wishes = {node.name: _wish(plan.decisions[node.name]) for node in plan.graph.nodes if _is_explicit(plan, node)}
    for node in plan.graph.nodes:
        # A pattern may select what returns no real numbers; an entry by name is refused there.
        if node.name in wishes and not any(plan.graph.tensors[name].is_float for name in node.outputs):
            wishes[node.name]["quantize_output"] = False
    return wishes


def _is_explicit(plan: PlacementPlan, node: Node) -> bool:
    return node.name in plan.decisions and plan.decisions[node.name].is_explicit


def _wish(decision: Decision) -> dict[str, Any]:
    wish = {
        "indices": set(decision.input_indices),
        "quantize_weight": decision.quantize_weight,
        "quantize_output": decision.quantize_output,
    }
    settings = decision.settings
    if not settings:
        return wish
    weights = settings.get("weights") or {}
    config = LayerQuantizeConfig(
        weight=weights.get(EVERY_WEIGHT, weights) or None,  # a config has `*` as one mapping for all weights
        activation=settings.get("activation"),
        output=settings.get("output"),
    )
    return {**wish, "quantize_config": config}


def _merge(wishes: dict[str, dict[str, Any]], plan: PlacementPlan, fix: Fix) -> None:
    """Add the pairs of a fix to the wishes; a fix never removes a pair."""
    for node in _nodes(plan, fix["name"]):
        decision = plan.decisions.get(node.name)
        wish = wishes.setdefault(node.name, _wish(decision or _NOTHING))
        if fix.get("quantize_input", True):
            indices = fix.get("quantization_index")
            indices = set(range(len(node.inputs)) if indices is None else indices)
            _share(wish, plan, node, indices - wish["indices"])
            wish["indices"] |= indices
        wish["quantize_weight"] = wish["quantize_weight"] or (bool(node.weights) and fix.get("quantize_weight", True))
        wish["quantize_output"] = wish["quantize_output"] or fix.get("quantize_output", False)


def _share(wish: dict[str, Any], plan: PlacementPlan, node: Node, indices: Collection[int]) -> None:
    """Give new pairs of inputs the settings of those that other readers have there: one tensor then has one range."""
    pairs = [
        (plan.decisions[reader.name].settings or {}).get("activation")
        for index in indices
        for reader, at in plan.graph.readers(node.inputs[index])
        if reader.name in plan.decisions and at in plan.decisions[reader.name].input_indices
    ]
    if pairs and pairs[0] and "quantize_config" not in wish and all(settings == pairs[0] for settings in pairs):
        wish["quantize_config"] = LayerQuantizeConfig(activation=pairs[0])


def _nodes(plan: PlacementPlan, name: str) -> Iterator[Node]:
    for node in plan.graph.calls(name):
        if not node.is_model_input:
            yield node


def _spec_of(wishes: dict[str, dict[str, Any]]) -> QuantizationSpec:
    spec = QuantizationSpec()
    for name, wish in wishes.items():
        others = {key: value for key, value in wish.items() if key != "indices"}
        indices = sorted(wish["indices"])
        spec.add(name, quantize_input=bool(indices), quantization_index=indices or None, **others)
    return spec
