"""Turns the fixes of an explanation into a specification."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from qdq_workbench.graph.kinds import MERGES
from qdq_workbench.graph.model_graph import Node
from qdq_workbench.placement.decide import decide
from qdq_workbench.placement.decision import Decision
from qdq_workbench.placement.defaults import find_default
from qdq_workbench.placement.entries import Entry, add_entries, entry_of
from qdq_workbench.placement.global_grid import with_global_grid
from qdq_workbench.placement.plan import PlacementPlan
from qdq_workbench.placement.planner import make_plan
from qdq_workbench.runtimes.rule_sets import layer_explanations
from qdq_workbench.runtimes.verdict import Fix, LayerExplanation
from qdq_workbench.spec.quantization_spec import QuantizationSpec
from qdq_workbench.spec.quantize_config import LayerQuantizeConfig

_ROUNDS = 10
_NOTHING = Decision((), quantize_weight=False, quantize_output=False, author="default", reason="")


def apply_fixes(plan: PlacementPlan, layers: Sequence[LayerExplanation], opset: int | None = None) -> QuantizationSpec:
    """Return the specification of a plan with all fixes of the given layers; see `Explanation.apply_fixes`."""
    wishes, chosen = _wishes(plan), {entry.layer for entry in layers}
    for _ in range(_ROUNDS):
        # Fixing a layer with weights may fix layers behind it too, so those come first, then merges, then the rest.
        # `any` stops at the first rank that changes something, and the plan is made anew before the next one.
        if not any(_apply(wishes, layers, plan, rank) for rank in range(3)):
            break
        decisions = with_global_grid(plan.graph, decide(plan.graph, plan.mode, _spec_of(plan, wishes), []))
        # A specification has no overrides, but the verdicts depend on them.
        kept = {name: decision.overrides for name, decision in plan.decisions.items() if decision.overrides}
        decisions.update(
            {name: dataclasses.replace(decisions.get(name) or _NOTHING, overrides=how) for name, how in kept.items()}
        )
        plan = make_plan(plan.graph, decisions, plan.mode, plan.target_object)
        layers = [entry for entry in layer_explanations(plan, opset) if entry.layer in chosen]
    return _spec_of(plan, wishes)


def leave_in_float(plan: PlacementPlan, layers: Collection[str]) -> QuantizationSpec:
    """Return the specification of a plan with some layers in float."""
    wishes = _wishes(plan)
    for layer in layers:
        for node in _nodes(plan, layer):
            if node.name in plan.decisions and node.inputs:
                wishes[node.name] = entry_of(plan.graph, node, _NOTHING)
    return _spec_of(plan, wishes)


def _apply(wishes: dict[str, Entry], layers: Sequence[LayerExplanation], plan: PlacementPlan, rank: int) -> bool:
    """Apply the fixes of the layers of one rank; return whether any of them changes the wishes."""
    before = dict(wishes)
    for entry in layers:
        if _rank(plan.graph.calls(entry.layer)[0]) == rank:
            for fix in entry.fix:
                for node in _nodes(plan, fix["name"]):
                    wishes[node.name] = _merged(wishes.get(node.name), plan, node, fix)
    return wishes != before


def _rank(node: Node) -> int:
    default = find_default(node)
    if default is not None and default.weights:
        return 0
    return 1 if node.is_a(*MERGES) else 2


def _wishes(plan: PlacementPlan) -> dict[str, Entry]:
    """Return the decisions of specification and cases as entries per call."""
    decided = ((node, plan.decisions.get(node.name)) for node in plan.graph.nodes)
    return {node.name: entry_of(plan.graph, node, each) for node, each in decided if each and each.is_explicit}


def _merged(wish: Entry | None, plan: PlacementPlan, node: Node, fix: Fix) -> Entry:
    """Return the entry of a call with the pairs of a fix added; a fix never removes a pair."""
    wish = wish or entry_of(plan.graph, node, plan.decisions.get(node.name, _NOTHING))
    indices, config = set(wish["quantization_index"] or ()), wish["quantize_config"]
    added = _new_inputs(plan, node, fix) - indices
    ranges = [_settings_on(plan, node.inputs[index]) for index in sorted(added)]
    # A tensor shall have one range, but settings hold for all inputs of a call, those with pairs included.
    if any(ranges):
        own = indices or (config is not None and config.activation is not None)
        if not own and all(each == ranges[0] for each in ranges):
            config = dataclasses.replace(config or LayerQuantizeConfig(), activation=ranges[0])
        else:  # what a pair for all readers serves needs no second one
            added = {index for index in added if plan.output_placement(node.inputs[index]) is None}
    return {
        "quantize_input": bool(indices | added),
        "quantization_index": sorted(indices | added) or None,
        "quantize_weight": wish["quantize_weight"] or (bool(node.weights) and fix.get("quantize_weight", True)),
        "quantize_output": wish["quantize_output"] or fix.get("quantize_output", False),
        "quantize_config": config,
    }


def _new_inputs(plan: PlacementPlan, node: Node, fix: Fix) -> set[int]:
    """Return the inputs that get pairs by a fix: not a mask of booleans, but one of real numbers, which is read too."""
    if not fix.get("quantize_input", True):
        return set()
    asked = fix.get("quantization_index")
    indices = range(len(node.inputs)) if asked is None else asked
    return {index for index in indices if plan.graph.tensors[node.inputs[index]].is_float}


def _settings_on(plan: PlacementPlan, tensor: str) -> Mapping[str, Any] | None:
    """Return the settings that all inputs with a pair on a tensor have; None if they differ, or are the target's."""
    decided = [(plan.decisions.get(reader.name), index) for reader, index in plan.graph.readers(tensor)]
    found = [(each.settings or {}).get("activation") for each, index in decided if each and index in each.input_indices]
    return found[0] if found and all(settings == found[0] for settings in found) else None


def _nodes(plan: PlacementPlan, name: str) -> Iterator[Node]:
    for node in plan.graph.calls(name):
        if not node.is_model_input:
            yield node


def _spec_of(plan: PlacementPlan, wishes: dict[str, Entry]) -> QuantizationSpec:
    spec = QuantizationSpec()
    for layer in plan.graph.layers:
        entries = {call.name: wishes[call.name] for call in plan.graph.calls(layer) if call.name in wishes}
        if entries:
            add_entries(spec, plan.graph, layer, entries)
    return spec
