"""Other decisions about single layers of a plan: more bits, float, or pairs in other places.

A level of a layer is None (as the plan has it), a number of bits, "float", or which of its inputs and whether its
output have pairs, such as "inputs 0, 1 with output". Layers at a level carry the author "search".
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from qdq_workbench.errors import SpecError
from qdq_workbench.graph.model_graph import ModelGraph
from qdq_workbench.placement.decision import Decision
from qdq_workbench.placement.entries import add_entries, entry_of
from qdq_workbench.placement.plan import PlacementPlan
from qdq_workbench.placement.planner import make_plan
from qdq_workbench.placement.settings import EVERY_WEIGHT
from qdq_workbench.spec.quantization_spec import QuantizationSpec

FLOAT = "float"
Level = int | str | None
_PAIRS = re.compile(r"(?:inputs (?P<inputs>\d+(?:, \d+)*)|no inputs)? ?(?P<output>with|without) output")


def ladder_of(plan: PlacementPlan, layer: str, bits: Sequence[int]) -> list[Level]:
    """Return the levels that a layer of the plan can take with these numbers of bits, the cheapest first."""
    decisions = [plan.decisions.get(call.name) for call in plan.graph.calls(layer)]
    can_raise = all(_can_raise(decision) for decision in decisions)
    sites = {site for decision in decisions if decision is not None for site in _sites_with_bits(decision)}
    own = [p.quantizer.num_bits for p in plan.placements if p.layer == layer and p.site in sites]
    raised = [number for number in sorted(set(bits)) if own and min(own) < number] if can_raise else []
    return [None, *raised, FLOAT]


def pairs_level(inputs: Sequence[int] | None, *, output: bool) -> str:
    """Return the level of a layer by the inputs with a pair (None: as in the plan) and whether the output has one."""
    which = "" if inputs is None else f"inputs {', '.join(map(str, inputs))} " if inputs else "no inputs "
    return f"{which}{'with' if output else 'without'} output"


def raise_layers(plan: PlacementPlan, levels: Mapping[str, Level]) -> PlacementPlan:
    """Return the plan with some layers at other levels."""
    decisions = dict(plan.decisions)
    for layer, level in levels.items():
        for call in plan.graph.calls(layer):
            if level is not None and call.name in decisions:
                decisions[call.name] = _raised(decisions[call.name], level)
    return make_plan(plan.graph, decisions, plan.mode, plan.target_object)


def add_levels(spec: QuantizationSpec | None, plan: PlacementPlan, levels: Mapping[str, Level]) -> QuantizationSpec:
    """Return a copy of `spec`, with which `plan` was made, extended by an entry per layer with a level."""
    result = QuantizationSpec() if spec is None else spec.copy()
    for layer, level in levels.items():
        if level == FLOAT:
            result.add(layer, quantize_input=False, quantize_weight=False)
        elif level is not None:
            add_decisions(result, plan.graph, layer, {name: _raised(each, level) for name, each in _of(plan, layer)})
    return result


def add_changes(
    spec: QuantizationSpec | None,
    plan: PlacementPlan,
    before: Mapping[str, Decision],
    content: Callable[[Decision], Any] | None = None,
) -> QuantizationSpec:
    """Return a copy of `spec` with entries for the layers about whose calls `plan` decides otherwise than `before`.

    `before` holds the decisions that `spec` leads to, and `content` returns what of two decisions is compared: by
    default all but author and reason.
    """
    result, content = QuantizationSpec() if spec is None else spec.copy(), content or meaning
    for layer in plan.graph.layers:
        names = [call.name for call in plan.graph.calls(layer) if call.name in plan.decisions]
        # All calls: the name of a layer's first call stands for all of them.
        if any(name not in before or content(before[name]) != content(plan.decisions[name]) for name in names):
            add_decisions(result, plan.graph, layer, {name: plan.decisions[name] for name in names})
    return result


def meaning(decision: Decision) -> tuple[Any, ...]:
    """Return the content of a decision, without its author and reason."""
    sites = (decision.input_indices, decision.quantize_weight, decision.quantize_output)
    return (*sites, decision.settings, decision.overrides)


def add_decisions(spec: QuantizationSpec, graph: ModelGraph, layer: str, decisions: Mapping[str, Decision]) -> None:
    """Add to `spec` the entry of a layer that leads to these decisions, or an entry per call where they differ."""
    calls = [call for call in graph.calls(layer) if call.name in decisions]
    add_entries(spec, graph, layer, {call.name: entry_of(graph, call, decisions[call.name]) for call in calls})


def _of(plan: PlacementPlan, layer: str) -> list[tuple[str, Decision]]:
    """Return the decisions of a plan about the calls of a layer."""
    calls = [call.name for call in plan.graph.calls(layer)]
    return [(name, plan.decisions[name]) for name in calls if name in plan.decisions]


def _can_raise(decision: Decision | None) -> bool:
    """Return whether a layer's settings are those of a `LayerQuantizeConfig`, in which bits can be replaced."""
    if decision is None or decision.settings is None:
        return False
    return set(decision.settings) <= {"weights", "activation", "output"} and set(
        decision.settings.get("weights") or {EVERY_WEIGHT: None}
    ) == {EVERY_WEIGHT}


def _sites_with_bits(decision: Decision) -> list[str]:
    """Return the sites whose number of bits the settings say: only these are raised."""
    settings = decision.settings or {}
    weights = (settings.get("weights") or {}).values()
    found = {"weight": weights, "input": [settings.get("activation")], "output": [settings.get("output")]}
    return [name for name, sites in found.items() if any("num_bits" in (site or {}) for site in sites)]


def _raised(decision: Decision, level: Level) -> Decision:
    replaced = (*decision.replaced, decision.author)
    if level == FLOAT:
        reason = "kept in float for the sake of accuracy"
        # Overrides stay: they are about an output tensor and all its readers, not about this layer.
        return Decision((), False, False, "search", reason, replaced, overrides=decision.overrides)  # noqa: FBT003
    if isinstance(level, str):
        return _with_pairs(decision, level, replaced)
    settings: dict[str, Any] = dict(decision.settings or {})
    if settings.get("weights"):
        settings["weights"] = {name: _wider(site, level) for name, site in settings["weights"].items()}
    for key in ("activation", "output"):
        if settings.get(key):
            settings[key] = _wider(settings[key], level)
    reason = f"raised to {level} bits for the sake of accuracy"
    return dataclasses.replace(decision, author="search", reason=reason, replaced=replaced, settings=settings)


def _with_pairs(decision: Decision, level: str, replaced: tuple[str, ...]) -> Decision:
    """Return the decision with the pairs of a level."""
    found = _PAIRS.fullmatch(level)
    if found is None:
        raise SpecError(
            'A level is a number of bits, "float", or pairs such as "inputs 0, 1 with output", "no inputs without '
            f'output" or "with output". Received: level={level!r}'
        )
    inputs = decision.input_indices
    if found["inputs"] is not None:
        inputs = tuple(map(int, found["inputs"].split(", ")))
    # The group `inputs` is None for "no inputs" and for a level that does not mention inputs alike.
    elif level.startswith("no inputs"):
        inputs = ()
    return dataclasses.replace(
        decision,
        input_indices=inputs,
        quantize_output=found["output"] == "with",
        author="search",
        reason=f"the search has measured it {level}",
        replaced=replaced,
    )


def _wider(site: Mapping[str, Any], level: Any) -> dict[str, Any]:
    narrow = "num_bits" in site and site["num_bits"] < level
    return {**site, "num_bits": level} if narrow else dict(site)
