"""The rule sets by target, which explain how each runtime executes the layers of a plan."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from qdq_workbench.errors import TargetError
from qdq_workbench.graph.model_graph import Node
from qdq_workbench.placement.plan import PlacementPlan
from qdq_workbench.runtimes import litert, onnxruntime, openvino, tensorrt
from qdq_workbench.runtimes.facts import PlanFacts
from qdq_workbench.runtimes.verdict import LayerExplanation

RuleSet = Callable[[PlanFacts], Iterable[LayerExplanation]]
_RULE_SETS: dict[str, RuleSet] = {
    "litert": litert.explain_layers,
    "onnxruntime": onnxruntime.explain_layers,
    "openvino": openvino.explain_layers,
    "tensorrt": tensorrt.explain_layers,
}
_COSTS = ("macs", "int8_macs", "bytes", "int8_bytes")


def layer_explanations(plan: PlacementPlan, opset: int | None = None) -> tuple[LayerExplanation, ...]:
    """Return how the runtime of a plan executes every layer; raise TargetError if its target has no rule set.

    `opset` is None for the one that `export_onnx` chooses.
    """
    if plan.target not in _RULE_SETS:
        raise TargetError(f"No rules are known for target {plan.target!r}; known: {sorted(_RULE_SETS)}.")
    calls = tuple(_RULE_SETS[plan.target](PlanFacts(plan, opset)))
    shares_layers = len(plan.graph.layers) < len(plan.graph.nodes)
    return _merge_calls(calls) if shares_layers else calls


def integer_calls(plan: PlacementPlan) -> frozenset[str]:
    """Return the names of the calls that the plan's target computes on integers; none for a target without rules."""
    rules = _RULE_SETS.get(plan.target)
    if rules is None:
        return frozenset()
    entries = zip(_judged(plan), rules(PlanFacts(plan)), strict=True)
    return frozenset(node.name for node, entry in entries if entry.status == "int8")


def _judged(plan: PlacementPlan) -> list[Node]:
    """Return the calls that a rule set explains, in its order: all but inputs."""
    return [node for node in plan.graph.nodes if not node.is_model_input]


def _merge_calls(calls: Iterable[LayerExplanation]) -> tuple[LayerExplanation, ...]:
    """Merge the explanations of all calls of a shared layer into one, which is "partial" if the statuses differ."""
    by_layer: dict[str, list[LayerExplanation]] = {}
    for entry in calls:
        by_layer.setdefault(entry.layer, []).append(entry)
    return tuple(entries[0] if len(entries) == 1 else _merged(entries) for entries in by_layer.values())


def _merged(entries: Sequence[LayerExplanation]) -> LayerExplanation:
    worst = min(entries, key=lambda entry: ("float", "partial", "int8").index(entry.status))
    fields: dict[str, Any] = {name: sum(getattr(entry, name) for entry in entries) for name in _COSTS}
    if len({entry.status for entry in entries}) > 1:
        fields |= {"status": "partial", "reason": f"some of its {len(entries)} calls: {worst.reason}"}
    return dataclasses.replace(worst, **fields)
