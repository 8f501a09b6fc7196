"""Clicks on badges as changes of the specification: an entry is added, changed or removed.

A toggled layer gets an entry by name that holds its whole state. The entry is omitted if the plan is the same without
it: clicking twice restores the former specification.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import qdq_workbench as qdq
from qdq_widgets.errors import BenchError
from qdq_widgets.plain_numbers import whole
from qdq_widgets.state import BenchState, Planner, plan_key, spec_of
from qdq_widgets.targets import target_title

SITES = ("input", "weight", "output")


@dataclasses.dataclass(frozen=True)
class LayerWish:
    """The requested sites of one layer.

    Args:
        inputs: Indices of the inputs to quantize.
        weight: Whether to quantize the weights.
        output: Whether to quantize the output.
    """

    inputs: tuple[int, ...]
    weight: bool
    output: bool


def toggled(
    planner: Planner,
    state: BenchState,
    plan: Any,
    layers: Sequence[str],
    site: str,
    index: int | None = None,
    on: bool | None = None,
) -> tuple[BenchState, Any]:
    """Return the state and the plan after switching one site of some layers.

    `index` is the number of the input, None for all. None as `on` inverts: the site becomes float if it is quantized in
    all layers. A site that cannot be switched, or a change of nothing, raises `BenchError` with what to do instead.
    """
    if site not in SITES:
        raise BenchError(f'site must be "input", "weight" or "output". Received: site={site!r}')
    if not layers:
        raise BenchError("Name at least one layer to switch. Received: layers=[]")
    index = whole(index)
    if on is None:
        on = not all(_is_on(planner, plan, name, site, index) for name in layers)
    wishes = {}
    for name in dict.fromkeys(layers):
        node = planner.graph.calls(name)[0]
        _check_index(node, site, index)
        reason = blocked_reason(planner, plan, node, site, index)
        # Of several layers, those that cannot be switched are left as they are.
        if not reason:
            wishes[name] = changed(wish_of(plan, node), planner.usual_inputs(node, plan.target), site, index, on)
        elif len(layers) == 1:
            raise BenchError(
                f"This cannot be switched: {reason} Received: layer={name!r}, site={site!r}, index={index}"
            )
    after, after_plan = with_wishes(planner, state, plan, wishes)
    # Inputs that a pair for all readers still serves have another wish, but the same values.
    if plan_key(after_plan) == plan_key(plan) or _still_served(planner, after_plan, layers, site, index, on):
        raise BenchError(
            f"This changes nothing: {_why_nothing(planner, plan, layers[0], site)} "
            f"Received: layer={', '.join(layers)[:200]!r}, site={site!r}, index={index}"
        )
    return after, after_plan


def like(
    planner: Planner, state: BenchState, plan: Any, source: str, layers: Sequence[str] | None = None
) -> tuple[BenchState, Any]:
    """Return the state and the plan with the same sites of other layers quantized as of one layer.

    Args:
        planner: The planner of the model.
        state: The state before.
        plan: Its plan.
        source: The layer to copy from.
        layers: The layers to change, which keep their quantizers; None for all of the source's class, with one entry
            for the class that also has the quantizers of the source's entry.
    """
    example = planner.graph.calls(source)[0]
    wish = wish_of(plan, example)
    if layers is not None:
        wishes = {}
        for name in dict.fromkeys(layers):
            count = len(planner.graph.calls(name)[0].inputs)
            wishes[name] = dataclasses.replace(wish, inputs=tuple(i for i in wish.inputs if i < count))
        return with_wishes(planner, state, plan, wishes)
    same = {node.name for node in planner.graph.nodes if node.class_name == example.class_name}
    # Entries by name overrule those by class, so they would keep their layers as they are.
    kept = [e for e in state.spec.layers if not names_exactly(e, same) and not _names_class(e, example.class_name)]
    named = [e for e in state.spec.layers if names_exactly(e, {example.name, example.layer})]
    config = named[-1].quantize_config if named else None
    usual = planner.usual_inputs(example, plan.target)
    entry = _entry(example.class_name, wish, usual, is_class=True, config=config)
    after = state.replace(spec=spec_of([*kept, entry]))
    return after, planner.plan(after)


def with_wishes(
    planner: Planner,
    state: BenchState,
    plan: Any,
    wishes: Mapping[str, LayerWish],
    configs: Mapping[str, Any] | None = None,
) -> tuple[BenchState, Any]:
    """Return the state and the plan with an entry for every wish that the plan does not fulfil without one.

    Wishes are by layer path or name of a call, and so is the `quantize_config` of each; None keeps the settings as
    they are.
    """
    nodes = {name: planner.graph.calls(name)[0] for name in wishes}
    kept = [entry for entry in state.spec.layers if not names_exactly(entry, set(wishes))]
    if configs is None:
        configs = configs_of(state, plan, nodes)
    entries = {
        name: _entry(name, wish, planner.usual_inputs(nodes[name], state.target), config=configs.get(name))
        for name, wish in wishes.items()
    }
    full = state.replace(spec=spec_of([*kept, *entries.values()]))
    full_plan = planner.plan(full)
    # The plan without entries for these names: the present one, if there were none.
    bare = plan if len(kept) == len(state.spec.layers) else _plan_or_none(planner, state.replace(spec=spec_of(kept)))
    if bare is None:  # in partial mode without any entry there is no plan: the entries stay
        return full, full_plan
    needed = [
        entry
        for name, entry in entries.items()
        if wish_of(bare, nodes[name]) != wishes[name] or not _same_settings(bare, full_plan, nodes[name])
    ]
    if len(needed) < len(entries):
        # A target adds pairs where a default decides, but not where an entry does: the plans must be compared.
        shorter = state.replace(spec=spec_of([*kept, *needed]))
        shorter_plan = planner.plan(shorter) if needed else bare
        if plan_key(shorter_plan) == plan_key(full_plan):
            return shorter, shorter_plan
    return full, full_plan


def wish_of(plan: Any, node: Any) -> LayerWish:
    """Return the decision of spec, cases and defaults about a node, without the pairs that the target adds."""
    decision = plan.decisions.get(node.name)
    if decision is None:
        return LayerWish((), weight=False, output=False)
    return LayerWish(decision.input_indices, decision.quantize_weight, decision.quantize_output)


def configs_of(state: BenchState, plan: Any, nodes: Mapping[str, Any]) -> dict[str, Any]:
    """Return the `quantize_config` of an entry by name that leaves each node its settings; the key is that of the node.

    It is that of the node's own entry, else one that says what an entry for several layers or a case says.
    """
    authors = {f"spec[{position}]": entry for position, entry in enumerate(state.spec.layers)}
    found, others = {}, {}
    for name, node in nodes.items():
        decision = plan.decisions.get(node.name)
        entry = None if decision is None else authors.get(decision.author)
        if entry is not None and names_exactly(entry, {node.name, node.layer}):
            found[name] = entry.quantize_config
        elif decision is not None and decision.settings:
            others[node.name] = decision
    if others:
        # An explanation without layers has no fixes: its specification is that of the plan's decisions.
        alone = qdq.results.Explanation(plan.target, (), dataclasses.replace(plan, decisions=others))
        said = {entry.name: entry.quantize_config for entry in alone.apply_fixes().layers}
        found |= {
            name: said.get(node.name) or said.get(node.layer) for name, node in nodes.items() if name not in found
        }
    return found


def _same_settings(plan: Any, other: Any, node: Any) -> bool:
    settings = [each.decisions[node.name].settings if node.name in each.decisions else None for each in (plan, other)]
    return bool(settings[0] == settings[1])


def blocked_reason(planner: Planner, plan: Any, node: Any, site: str, index: int | None = None) -> str:
    """Return why the switch of a site has no effect; empty if it has one. An `index` of None stands for all inputs."""
    possible = planner.possible(plan.target)
    if site == "weight":
        if any(p.site == "weight" and p.layer == node.layer for p in possible.placements):
            return ""
        return _no_weights(plan, node)
    if site == "output":
        if any(p.site == "output" and p.node == node.name for p in possible.placements):
            return _target_needs(plan, node)
        floats = any(planner.graph.tensors[name].is_float for name in node.outputs)
        return "Switch the inputs of its readers instead." if floats else "The output holds no real numbers."
    indices = range(len(node.inputs)) if index is None else [index]
    if not node.inputs:
        return f"{node.class_name} reads no tensor; its readers quantize what it gives."
    blocked = [_blocked_input(planner, plan, node, item) for item in indices]
    return blocked[0] if all(blocked) else ""


def _blocked_input(planner: Planner, plan: Any, node: Any, index: int) -> str:
    tensor = planner.graph.tensors[node.inputs[index]]
    if not tensor.is_float:
        return f"Input {index} holds {tensor.dtype} values, not real numbers."
    source = plan.output_placement(tensor.name)
    if source is None or index in wish_of(plan, node).inputs:
        return ""
    ways_out = f"which {target_title(plan.target)} needs" if source.author == "target" else "which can be switched off"
    return f"Input {index} is quantized already, by the output pair of {source.layer!r}, {ways_out}."


def _still_served(planner: Planner, plan: Any, layers: Sequence[str], site: str, index: int | None, on: bool) -> bool:
    """Return whether inputs that were switched off are still quantized, by pairs for all readers."""
    if on or site != "input":
        return False
    nodes = [planner.graph.calls(name)[0] for name in layers]
    touched = [
        (node, i) for node in nodes for i in (planner.usual_inputs(node, plan.target) if index is None else [index])
    ]
    return all(plan.input_placement(node.name, i) is not None for node, i in touched)


def _why_nothing(planner: Planner, plan: Any, layer: str, site: str) -> str:
    """Return why a site stays as it is although the wish changed."""
    node = planner.graph.calls(layer)[0]
    for index, tensor in enumerate(node.inputs if site == "input" else ()):
        pair = plan.output_placement(tensor)
        if pair is not None and pair.author == "target":
            return f"input {index} reads {tensor!r}, whose pair serves all its readers. {_placed_by_target(pair)}"
        if pair is not None:
            return (
                f"input {index} reads {tensor!r}, whose pair serves all its readers (the output of {pair.layer!r}, by "
                f"{pair.author}). Switch that output off instead."
            )
    for tensor in node.outputs if site == "output" else ():
        pair = plan.output_placement(tensor)
        if pair is not None and pair.author == "target":
            return _placed_by_target(pair)
    return "what was asked for is so already, or cannot be."


def _placed_by_target(pair: Any) -> str:
    return f"{pair.reason[:1].upper()}{pair.reason[1:]}; leave that layer in float and the pair goes with it."


def _no_weights(plan: Any, node: Any) -> str:
    if not node.weights:
        return f"{node.class_name} has no weights."
    reasons = [item.reason for item in plan.unquantized if item.layer == node.layer and "/" in item.tensor]
    return f"The weights of {node.class_name} stay in float" + (f": {reasons[-1]}." if reasons else ".")


def _target_needs(plan: Any, node: Any) -> str:
    """Return why an output cannot be switched: the target's own pair is removed only with the layer's other pairs."""
    wish = wish_of(plan, node)
    owned = [plan.output_placement(name) for name in node.outputs]
    if wish.inputs and any(p is not None and p.author == "target" for p in owned):
        return f"{target_title(plan.target)} needs this pair; switch the layer's inputs off to leave it in float."
    return ""


def _is_on(planner: Planner, plan: Any, name: str, site: str, index: int | None) -> bool:
    """Return whether a site is switched on: by the layer's wish, for an output also by any pair on it."""
    node = planner.graph.calls(name)[0]
    wish = wish_of(plan, node)
    if site == "weight":
        return wish.weight
    if site == "output":
        return wish.output or any(plan.output_placement(tensor) is not None for tensor in node.outputs)
    if index is not None:
        return index in wish.inputs
    return bool(wish.inputs) and set(planner.usual_inputs(node, plan.target)) <= set(wish.inputs)


def _check_index(node: Any, site: str, index: int | None) -> None:
    if index is None:
        return
    if site != "input":
        raise BenchError(f'index belongs to site "input" only. Received: site={site!r}, index={index!r}')
    if isinstance(index, bool) or not isinstance(index, int) or not 0 <= index < len(node.inputs):
        raise BenchError(
            f"Layer {node.layer!r} ({node.class_name}) has {len(node.inputs)} inputs, counted from 0. "
            f"Received: index={index!r}"
        )


def changed(wish: LayerWish, usual: Sequence[int], site: str, index: int | None, on: bool) -> LayerWish:
    """Return a wish with one site switched on or off.

    Args:
        wish: The wish.
        usual: The inputs that are quantized without an index; see `Planner.usual_inputs`.
        site: "input", "weight" or "output".
        index: Number of the input; None for the usual inputs, or to switch all inputs off.
        on: Whether the site is quantized.
    """
    if site == "weight":
        return dataclasses.replace(wish, weight=on)
    if site == "output":
        return dataclasses.replace(wish, output=on)
    touched = {index} if index is not None else set(usual) if on else set(wish.inputs)
    inputs = set(wish.inputs) | touched if on else set(wish.inputs) - touched
    return dataclasses.replace(wish, inputs=tuple(sorted(inputs)))


def _plan_or_none(planner: Planner, state: BenchState) -> Any:
    try:
        return planner.plan(state)
    except qdq.SpecError:
        return None


def _entry(name: str, wish: LayerWish, usual: Sequence[int], *, is_class: bool = False, config: Any = None) -> Any:
    no_index = not wish.inputs or set(wish.inputs) == set(usual)
    return qdq.LayerConfig(
        name=name,
        is_keras_class=is_class,
        quantize_input=bool(wish.inputs),
        quantize_weight=wish.weight,
        quantization_index=None if no_index else list(wish.inputs),
        quantize_output=wish.output,
        quantize_config=config,
    )


def names_exactly(entry: Any, names: set[str]) -> bool:
    """Return whether an entry is by exact name, and its name is one of the given ones."""
    return not entry.is_keras_class and entry.match == "exact" and entry.name in names


def _names_class(entry: Any, class_name: str) -> bool:
    return entry.is_keras_class and entry.match == "exact" and entry.name == class_name
