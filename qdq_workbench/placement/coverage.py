"""How much of a model stays in float because planning does not know its layers, and the advice for it."""

from __future__ import annotations

import math
from collections.abc import Mapping

from qdq_workbench.graph.macs import count_macs
from qdq_workbench.graph.model_graph import ModelGraph, Node, Weight
from qdq_workbench.placement.defaults import find_default, is_bias
from qdq_workbench.placement.plan import PlacementPlan
from qdq_workbench.placement.unknown_layers import NOT_ENTERED, WAY_OUT

LOW = 0.5
_OFTEN = 3


def low_coverage(plan: PlacementPlan) -> str:
    """Return a warning if most of a model stays in float because planning does not know its layers; else "".

    Layers that a user, a case or a default leaves in float do not count. The computation of a custom layer is
    estimated (`estimated_macs`).
    """
    if plan.mode != "full":
        return ""
    graph = plan.graph
    unknown = [node for node in graph.nodes if _is_unknown(plan, node)]
    if not unknown:
        return ""
    work = {node.name: float(estimated_macs(graph, node)) for node in graph.nodes}
    # Further calls of a shared layer add computation, but no weights.
    first = {graph.calls(layer)[0].name for layer in graph.layers}
    size = {node.name: float(_elements(node)) for node in graph.nodes if node.name in first}
    # The weights decide where products are not counted, such as those of tables whose rows are looked up.
    for what, amounts in (("computation", work), ("weights", size)):
        share = _share(unknown, amounts)
        if share > LOW:
            return (
                f"About {100 * share:.0f} % of the {what} of {graph.name!r} stays in float, because planning does not "
                f"know the layers: {_listed(unknown, amounts)}{_reason(unknown)}. To quantize that too, {WAY_OUT}; or "
                "name the layers in a specification, which makes their inputs and weights integers and leaves what is "
                "between in float."
            )
    return ""


def estimated_macs(graph: ModelGraph, node: Node) -> int:
    """Return the multiply-accumulate operations of a call; an unknown layer applies its matrices at every position."""
    counted = count_macs(graph, node)
    if node.is_operation or find_default(node) is not None or not node.inputs:
        return counted
    source = graph.tensors[node.inputs[0]]
    if not source.is_float:  # indices, which look up rows
        return counted
    return max(counted, _elements(node) * math.prod(size or 1 for size in source.shape[1:-1]))


def _is_unknown(plan: PlacementPlan, node: Node) -> bool:
    """Return whether a layer with matrices stays in float only because no default knows its class."""
    decision = plan.decisions.get(node.name)
    if decision is None or not decision.is_float or decision.author != "default" or node.is_operation:
        return False
    return find_default(node) is None and any(_is_matrix(weight) for weight in node.weights)


def _is_matrix(weight: Weight) -> bool:
    # Axes of size 1 do not count: a gain of shape (1, 1, C) is a vector.
    return sum(size > 1 for size in weight.shape) > 1 and weight.is_float and not is_bias(weight.name)


def _elements(node: Node) -> int:
    return sum(math.prod(weight.shape) for weight in node.weights if _is_matrix(weight))


def _share(unknown: list[Node], amounts: Mapping[str, float]) -> float:
    total = sum(amounts.values())
    return sum(amounts.get(node.name, 0.0) for node in unknown) / total if total else 0.0


def _reason(unknown: list[Node]) -> str:
    """Return why the first composite layer is not entered, if there is one; else ""."""
    found = next((node for node in unknown if NOT_ENTERED in node.opaque), None)
    return "" if found is None else f"; of {found.layer!r}, {NOT_ENTERED}{found.opaque.partition(NOT_ENTERED)[2]}"


def _listed(unknown: list[Node], amounts: Mapping[str, float]) -> str:
    """Return the classes of the layers, largest amount first, each with the number of layers and the name of one."""
    classes: dict[str, dict[str, float]] = {}
    for node in unknown:
        layers = classes.setdefault(node.class_name, {})
        layers[node.layer] = layers.get(node.layer, 0.0) + amounts.get(node.name, 0.0)
    ordered = sorted(classes.items(), key=lambda item: -sum(item[1].values()))
    found = [
        f"{len(layers)} {name} ({next(iter(layers))!r}{', ...' if len(layers) > 1 else ''})"
        for name, layers in ordered[:_OFTEN]
        if sum(layers.values())
    ]
    return ", ".join([*found, *(["..."] if len(ordered) > _OFTEN else [])])
