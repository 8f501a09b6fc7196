"""Equal layers of repeated blocks, which a search may decide about together."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from qdq_workbench.graph.model_graph import ModelGraph, Node
from qdq_workbench.placement.plan import PlacementPlan


def group_equal(plan: PlacementPlan, layers: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """Return the groups of equal layers, by the first layer of each group in the given order.

    Layers are equal if their classes, settings, shapes of weights, inputs and outputs, the plan's decisions about them,
    and the classes of their producers and readers are equal, as at the same place of repeated blocks.
    """
    groups: dict[str, list[str]] = {}
    for layer in layers:
        groups.setdefault(_pattern(plan, layer), []).append(layer)
    return {members[0]: tuple(members) for members in groups.values()}


def _pattern(plan: PlacementPlan, layer: str) -> str:
    """Return a text that is the same for equal layers."""
    return json.dumps([_place(plan, call) for call in plan.graph.calls(layer)], sort_keys=True, default=str)


def _place(plan: PlacementPlan, call: Node) -> list[Any]:
    graph = plan.graph
    decision = plan.decisions.get(call.name)
    decided: list[Any] = []
    if decision is not None:
        sites = [list(decision.input_indices), decision.quantize_weight, decision.quantize_output]
        # Without the keys of the overrides: names of tensors differ between equal layers.
        decided = [sites, decision.settings, list(decision.overrides.values())]
    return [
        list(call.classes),
        dict(call.settings),
        [[weight.name, list(weight.shape), weight.dtype] for weight in call.weights],
        [_value(graph, tensor) for tensor in (*call.inputs, *call.outputs)],
        decided,
        _neighbours(graph, call),
    ]


def _value(graph: ModelGraph, tensor: str) -> list[Any]:
    return [list(graph.tensors[tensor].shape), graph.tensors[tensor].dtype, tensor in graph.outputs]


def _neighbours(graph: ModelGraph, call: Node) -> list[Any]:
    before = [graph.producer(tensor).class_name for tensor in call.inputs]
    behind = sorted((node.class_name, index) for tensor in call.outputs for node, index in graph.readers(tensor))
    return [before, behind]
