"""The plan of decisions: a pure function of the graph, the decisions and the target."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from qdq_workbench.errors import SpecError
from qdq_workbench.graph.kinds import MERGES
from qdq_workbench.graph.model_graph import INTEGERS, ModelGraph, Node
from qdq_workbench.graph.unread_weights import unread_weights
from qdq_workbench.graph.weight_sizes import weight_sizes
from qdq_workbench.placement.blocks import axes_for_blocks, check_blocks
from qdq_workbench.placement.completion import complete
from qdq_workbench.placement.decision import Decision
from qdq_workbench.placement.defaults import find_default, find_named_default, is_bias
from qdq_workbench.placement.plan import Placement, PlacementPlan, Unquantized
from qdq_workbench.placement.settings import Settings, grid_of, method_of, weight_settings
from qdq_workbench.placement.shared_settings import share_settings
from qdq_workbench.placement.targets import Target, get_target, is_registered
from qdq_workbench.placement.wrong_kernels import WHY_FLOAT, tensors_without_pairs, without_wrong_kernels
from qdq_workbench.spec.quantizer_method import KEPT, QuantizerMethod
from qdq_workbench.spec.quantizer_spec import QuantizerSpec

_UNREAD = "no output of the model depends on it: of the layer's results only others are read"
#: The override with which a tensor stays in float.
FLOAT = "float"
_DEFAULT_TARGET = "tensorrt"  # of the arguments `target` beside a plan
_FLOATS = ("float16", "bfloat16", "float32", "float64")


def make_plan(graph: ModelGraph, decisions: Mapping[str, Decision], mode: str, target: str | Target) -> PlacementPlan:
    """Return the plan that follows from the decisions of `decide` under one target."""
    target = get_target(target)
    placements = [p for node in graph.nodes for p in _placements_of(graph, node, decisions, target)]
    # Before `complete`, which would take such a pair for a quantized input and add pairs behind it.
    placements = without_wrong_kernels(graph, placements, target)
    # Overrides hold for the pairs of the target, too. Settings are shared among the pairs that are left then.
    placements = _overridden(complete(graph, placements, decisions, mode, target), decisions)
    placements = share_settings(graph, placements, decisions)
    _check_blocks(graph, placements, target)
    altered = None if is_registered(target) else target
    plan = PlacementPlan(graph, mode, target.name, tuple(placements), dict(decisions), altered_target=altered)
    unquantized = tuple(_unquantized(plan))
    return PlacementPlan(graph, mode, target.name, plan.placements, plan.decisions, unquantized, altered)


def check_is_plan(plan: Any) -> None:
    """Raise an error unless an argument `plan` is one.

    Raises:
        SpecError: If it is something else, such as the path of a file.
    """
    if not isinstance(plan, PlacementPlan):
        raise SpecError(
            "plan must be a PlacementPlan: plan_placement(model) makes one, PlacementPlan.load(path) reads one. "
            f"Received: {plan!r} of type {type(plan).__name__}"
        )


def meant_target(plan: PlacementPlan, target: str | Target | None) -> Target:
    """Return the target that an argument `target` beside a plan means; the one place that decides it.

    None and the name of the plan's own target mean the plan's own, also if that is an altered one: who passes the
    name of what a model was quantized for wants it as it is. A `Target` means itself, `get_target(name)` so the
    registered one.

    Raises:
        TargetError: If there is no such target.
    """
    return plan.target_object if target is None or target == plan.target else get_target(target)


def check_target(plan: PlacementPlan, target: str | Target) -> None:
    """Raise an error unless a target that is given with a plan is that of the plan, or the default of the argument.

    Raises:
        SpecError: If it is another one.
        TargetError: If there is no such target.
    """
    # An argument that was left out looks like the default's name.
    if target != _DEFAULT_TARGET and meant_target(plan, target) != plan.target_object:
        raise SpecError(
            "A plan is made for one target. Make one for the other, plan_placement(model, target=...), or leave out "
            f"target. Received: target={getattr(target, 'name', target)!r}, a plan for {plan.target_label!r}"
        )


def _check_blocks(graph: ModelGraph, placements: list[Placement], target: Target) -> None:
    """Raise an error if weights are in blocks that the target does not support."""
    blocked = [placement for placement in placements if placement.quantizer.block_size is not None]
    if not blocked:
        return
    outputs = {p.tensor: p for p in placements if p.site == "output"}
    reads = {(p.node, p.input_index): p for p in placements if p.site == "input" and p.input_index is not None}
    for node in graph.nodes:
        for index, tensor in enumerate(node.inputs):
            if tensor in outputs:
                reads.setdefault((node.name, index), outputs[tensor])
    check_blocks(graph, blocked, target, reads)


def override_tensors(plan: PlacementPlan, overrides: Mapping[str, Any]) -> PlacementPlan:
    """Return the plan with other settings for every pair on some tensors; they persist under other targets.

    By tensor, an override is its settings (see `placement.settings`) or "float".
    """
    decisions = dict(plan.decisions)
    for tensor, override in overrides.items():
        node = plan.graph.producer(tensor)
        decision = decisions.get(node.name) or Decision((), False, False, "default", "an input of the model")  # noqa: FBT003
        decisions[node.name] = dataclasses.replace(decision, overrides={**decision.overrides, tensor: override})
    placements = tuple(_overridden(plan.placements, decisions))
    changed = dataclasses.replace(plan, placements=placements, decisions=decisions)
    return dataclasses.replace(changed, unquantized=tuple(_unquantized(changed)))


def _overridden(placements: Iterable[Placement], decisions: Mapping[str, Decision]) -> list[Placement]:
    """Return the placements with the overrides of their tensors applied, including the pairs added by a target."""
    overrides = {tensor: how for decision in decisions.values() for tensor, how in decision.overrides.items()}
    found = []
    for placement in placements:
        how = overrides.get(placement.tensor) if placement.site != "weight" else None
        if how is None:
            found.append(placement)
        elif how != FLOAT:
            grid = grid_of(placement.quantizer, how)
            found.append(dataclasses.replace(placement, quantizer=grid, method=method_of(how, "activation")))
    return found


def _placements_of(
    graph: ModelGraph, node: Node, decisions: Mapping[str, Decision], target: Target
) -> Sequence[Placement]:
    """Return the placements that a decision asks for; those of the last plan if it has the same decision.

    Nearly all decisions are those of the defaults, one object for all plans: making hundreds of placements after every
    click of a user interface is slow, and sends the garbage collector through all that the session holds.
    """
    decision, known = decisions.get(node.name), graph.once(_last_placements)
    last = known.get(node.name)
    if last is not None and last[0] is decision and last[1] is target:
        return last[2]
    found = tuple(_placements(graph, node, decisions, target))
    if len(graph.calls(node.layer)) == 1:  # else the weights depend on the decisions about the other calls too
        known[node.name] = (decision, target, found)
    return found


def _last_placements(
    graph: ModelGraph,  # noqa: ARG001 - begins empty for any graph
) -> dict[str, tuple[Decision | None, Target, tuple[Placement, ...]]]:
    """Return decision, target and placements of every call in the last plan, for `_placements_of` to read and set."""
    return {}


def _placements(
    graph: ModelGraph, node: Node, decisions: Mapping[str, Decision], target: Target
) -> Iterator[Placement]:
    decision = decisions.get(node.name)
    if decision is None:
        return
    for index in decision.input_indices:
        tensor = node.inputs[index]
        # Masks and indices are inputs, too, and have no grid.
        if graph.tensors[tensor].dtype in _FLOATS:
            yield _placement("input", node, tensor, decision, target, input_index=index)
    if decision.quantize_output:
        for tensor in node.outputs:
            read = bool(graph.readers(tensor)) or tensor in graph.outputs  # an unread pair is in no file
            if read and graph.tensors[tensor].dtype in _FLOATS:
                yield _placement("output", node, tensor, decision, target)
    if graph.calls(node.layer)[0] is node:  # a shared layer has one set of weights: they belong to its first call
        wanting = _weight_decision(graph, node, decisions)
        if wanting is not None:
            unread = unread_weights(graph, node.layer)
            yield from (p for p in _weight_placements(node, wanting, target) if p.weight not in unread)


def _weight_decision(graph: ModelGraph, node: Node, decisions: Mapping[str, Decision]) -> Decision | None:
    """Return the decision about a layer's weights; raise an error if its calls quantize them differently."""
    wanting = [d for d in (decisions[call.name] for call in graph.calls(node.layer)) if d.quantize_weight]
    own = [decision for decision in wanting if (decision.settings or {}).get("weights") is not None]
    for other in own[1:]:
        if other.settings["weights"] != own[0].settings["weights"]:  # type: ignore[index]
            raise SpecError(
                f"Layer {node.layer!r} is shared: its calls have one set of weights, but {own[0].author} and "
                f"{other.author} give these weights different quantizers. Use one quantize_config for all calls. "
                f"Received: {own[0].settings} and {other.settings}"
            )
    # Calls without settings accept those of another call: there is one set of weights.
    return next(iter(own or wanting), None)


def _weight_placements(node: Node, decision: Decision, target: Target) -> Iterator[Placement]:
    # Only an entry that names a layer of an unknown class quantizes its matrices.
    default = find_named_default(node) if decision.is_explicit else find_default(node)
    axes = default.weights if default else {}
    ranks = {weight.name: len(weight.shape) for weight in node.weights}
    integers = node.settings.get(INTEGERS, {})
    for name, site in weight_settings(decision.settings, axes).items():
        # An entry for several layers may have settings for a weight that only some of them have.
        if name not in ranks:
            continue
        # With settings of the user's own the values of these integers are quantized anew.
        if site is None and name in integers:
            yield _weight_of_keras(node, name, integers[name], decision)
            continue
        _check_axis(node, name, site, ranks[name], decision.author)
        axis = axes.get(name)
        yield Placement(
            site="weight",
            layer=node.layer,
            node=node.name,
            tensor=f"{node.layer}/{name}",
            quantizer=grid_of(
                target.weight,
                site,
                None if axis is None else axis % ranks[name],
                ranks[name],
                axes_for_blocks(node, name, site, decision.author),
            ),
            reason=decision.reason,
            author=decision.author,
            weight=name,
            replaced=decision.replaced,
            method=method_of(site, "weight"),
        )


def _check_axis(node: Node, weight: str, site: Settings | None, rank: int, author: str) -> None:
    """Raise an error if the settings of a weight choose an axis that it does not have."""
    site, axes = site or {}, max(rank, 1)
    # With one scale for the whole weight an axis has no effect.
    if "axis" not in site or (site.get("per_axis") is False and site.get("block_size") is None):
        return
    if not -axes <= site["axis"] < axes:
        raise SpecError(
            f"{author}: the weight {weight!r} of layer {node.layer!r} has {rank} axes, counted from 0, or from the end "
            f"from -1. Received: axis={site['axis']}"
        )


def _weight_of_keras(node: Node, name: str, grid: Mapping[str, Any], decision: Decision) -> Placement:
    """Return the placement of a weight that Keras has quantized: on its grid, whatever the target's default."""
    return Placement(
        site="weight",
        layer=node.layer,
        node=node.name,
        tensor=f"{node.layer}/{name}",
        quantizer=QuantizerSpec.from_dict(dict(grid)),
        reason=f"{decision.reason}; its integers are those of model.quantize",
        author=decision.author,
        weight=name,
        replaced=decision.replaced,
        method=QuantizerMethod.make(KEPT, {}),
    )


def _placement(
    site: str, node: Node, tensor: str, decision: Decision, target: Target, input_index: int | None = None
) -> Placement:
    own = (decision.settings or {}).get("activation" if site == "input" else "output")
    return Placement(
        site=site,  # type: ignore[arg-type]
        layer=node.layer,
        node=node.name,
        tensor=tensor,
        quantizer=grid_of(target.activation, own),
        reason=decision.reason,
        author=decision.author,
        input_index=input_index,
        replaced=decision.replaced,
        method=method_of(own, "activation"),
    )


def _unquantized(plan: PlacementPlan) -> Iterator[Unquantized]:
    """Yield every value of a weighted or merging layer that stays in float, with the reason."""
    planned = {placement.tensor for placement in plan.placements if placement.site == "weight"}
    avoided = tensors_without_pairs(plan.graph, plan.target_object)
    for node in plan.graph.nodes:
        decision = plan.decisions.get(node.name)
        if decision is None or not (node.weights or node.is_a(*MERGES)):
            continue
        for index, tensor in enumerate(node.inputs):
            if plan.input_placement(node.name, index) is None:
                reason = WHY_FLOAT if tensor in avoided else _why_float(plan, tensor, decision)
                yield Unquantized(node.layer, f"input {index}", tensor, reason)
        if plan.graph.calls(node.layer)[0] is not node:
            continue
        floats = tuple(name for name in weight_sizes(plan.graph)[node.layer] if name not in planned)
        if floats:
            yield from _float_weights(plan.graph, node, floats, decision)


def _float_weights(
    graph: ModelGraph, node: Node, floats: tuple[str, ...], decision: Decision
) -> tuple[Unquantized, ...]:
    """Return the weights of a layer that stay in float; for the same weights and decision, those of the last plan."""
    known = graph.once(_last_float_weights)
    last = known.get(node.name)
    if last is None or last[0] is not decision or last[1] != floats:
        unread, found = unread_weights(graph, node.layer), []
        for name in floats:
            weight = name.removeprefix(f"{node.layer}/")
            reason = _UNREAD if weight in unread else _why_weight_float(node, weight, decision)
            found.append(Unquantized(node.layer, weight, name, reason))
        known[node.name] = last = (decision, floats, tuple(found))
    return last[2]


def _last_float_weights(
    graph: ModelGraph,  # noqa: ARG001 - begins empty for any graph
) -> dict[str, tuple[Decision, tuple[str, ...], tuple[Unquantized, ...]]]:
    """Return decision, float weights and their reasons of the last plan, for `_float_weights` to read and set."""
    return {}


def _why_float(plan: PlacementPlan, tensor: str, decision: Decision) -> str:
    producer = plan.decisions.get(plan.graph.producer(tensor).name)
    if producer is not None and producer.overrides.get(tensor) == FLOAT:
        return "the tensor is left in float for all of its readers"
    dtype = plan.graph.tensors[tensor].dtype
    if dtype not in _FLOATS:
        return f"the tensor holds {dtype} values, not real numbers"
    if decision.input_indices:
        return f"{decision.reason}, not this one"
    return decision.reason


def _why_weight_float(node: Node, weight: str, decision: Decision) -> str:
    default = find_default(node)
    if default is not None and weight in default.weights:
        return decision.reason
    if is_bias(weight):
        return "biases stay in float in the model; a target that wants int32 biases gets them on export"
    if node.is_a("BatchNormalization"):
        return "the parameters of a BatchNormalization are folded into the layer before it, or stay in float"
    return decision.reason if default is None else f"{weight} is not among the quantized weights of {node.class_name}"
