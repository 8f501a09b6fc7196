"""One decision per node, from specification, cases and defaults.

In order of precedence: an entry by name, an entry by class, a case, the default of the layer class. A case may choose
the inputs that an entry by class leaves open (`quantization_index=None`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence

from qdq_workbench.errors import ModeError, PlacementConflictError, SpecError, nearest_names
from qdq_workbench.graph.float_inside import why_float_inside
from qdq_workbench.graph.model_graph import INTEGERS, ModelGraph, Node
from qdq_workbench.placement.decision import Decision
from qdq_workbench.placement.defaults import NodeDefault, default_inputs, find_default, find_named_default
from qdq_workbench.placement.framework import FrameworkDecisions
from qdq_workbench.placement.selectors import select
from qdq_workbench.placement.settings import (
    Resolver,
    Settings,
    check_settings,
    check_weight_names,
    settings_of,
    weight_settings,
)
from qdq_workbench.placement.unknown_layers import why_no_default
from qdq_workbench.spec.framework_info import FrameworkInfo
from qdq_workbench.spec.quantization_spec import LayerConfig, QuantizationSpec

MODES = ("full", "partial")


@dataclasses.dataclass(frozen=True)
class _Claim:
    """An entry that applies to a node, and its author."""

    entry: LayerConfig
    author: str


def decide(
    graph: ModelGraph,
    mode: str,
    spec: QuantizationSpec | None,
    case_specs: Sequence[tuple[str, QuantizationSpec]],
    resolve: Resolver = settings_of,
    framework_info: FrameworkInfo | None = None,
) -> dict[str, Decision]:
    """Return the user-level decision about every node; about the model's inputs only if an entry names them.

    Each case is given as its name and the specification that it returned.
    """
    decisions = decisions_of(graph, mode, spec, case_specs, resolve, framework_info)
    if mode == "partial" and all(decision.is_float for decision in decisions.values()):
        raise SpecError(
            "Nothing is left to quantize: in partial mode only what the spec and the cases name is quantized, and "
            "they name no layer or switch all of them off. Name at least one layer with spec.add(...), pass a case "
            f'that applies, or use quantization_mode="full". Received: {len(spec.layers) if spec else 0} spec '
            f"entries and {len(case_specs)} cases"
        )
    return decisions


def decisions_of(
    graph: ModelGraph,
    mode: str,
    spec: QuantizationSpec | None,
    case_specs: Sequence[tuple[str, QuantizationSpec]],
    resolve: Resolver = settings_of,
    framework_info: FrameworkInfo | None = None,
) -> dict[str, Decision]:
    """Return the decisions of `decide`, also if they leave nothing to quantize."""
    _check_mode(mode)
    named, by_class, replaced = _claims_of_spec(graph, spec)
    from_cases = _claims_of_cases(graph, case_specs)
    # Filled below while `framework` reads it: what it decides depends on the decisions about earlier nodes.
    decisions: dict[str, Decision] = {}
    framework = _framework(graph, mode, framework_info, decisions)
    for node in graph.nodes:
        case = from_cases.get(node.name)
        claim = named.get(node.name) or by_class.get(node.name)
        # A `FrameworkInfo` may list InputLayer, so with one the inputs are decided about too.
        if node.is_model_input and not (claim or case or framework):
            continue
        if claim is not None:
            decision = _from_spec(node, claim, case, tuple(replaced.get(node.name, ())), mode, resolve)
            decisions[node.name] = framework.completed(node, decision) if framework else decision
        elif case is not None:
            decision = _from_claim(node, case, _overruled_default(node, mode), resolve)
            decisions[node.name] = framework.completed(node, decision) if framework else decision
        else:
            decisions[node.name] = framework.decide(node) if framework else _from_default(node, mode)
    if framework:
        framework.warn()
    return decisions


def _framework(
    graph: ModelGraph, mode: str, info: FrameworkInfo | None, decisions: dict[str, Decision]
) -> FrameworkDecisions | None:
    """Return the decisions of a `FrameworkInfo`, which replace the defaults; None without one."""
    if info is None:
        return None
    if not isinstance(info, FrameworkInfo):
        raise SpecError(f"framework_info must be a FrameworkInfo. Received: {type(info).__name__}")
    if mode == "partial":
        raise SpecError(
            "framework_info decides about every layer that the spec and the cases leave open, and partial mode leaves "
            'those in float. Use quantization_mode="full" with a framework_info. Received: quantization_mode="partial"'
        )
    return FrameworkDecisions(graph, info, decisions)


def _check_mode(mode: str) -> None:
    if mode not in MODES:
        hint = nearest_names(str(mode), MODES)
        raise ModeError(
            'quantization_mode must be "full" (defaults for every layer, changed by spec and cases) or "partial" '
            f"(only what spec and cases name). {hint} Received: quantization_mode={mode!r}"
        )


def _claims_of_spec(
    graph: ModelGraph, spec: QuantizationSpec | None
) -> tuple[dict[str, _Claim], dict[str, _Claim], dict[str, list[str]]]:
    """Return the claims by name and by class that win, and the authors that they overrule, per node."""
    named: dict[str, _Claim] = {}
    by_class: dict[str, _Claim] = {}
    replaced: dict[str, list[str]] = {}
    for position, entry in enumerate(spec.layers if spec is not None else ()):
        author = f"spec[{position}]"
        claims = by_class if entry.is_keras_class else named
        for node in _checked_nodes(graph, entry, author):
            if node.name in claims:
                replaced.setdefault(node.name, []).append(claims[node.name].author)
            claims[node.name] = _Claim(entry, author)
    for name in named.keys() & by_class.keys():
        replaced.setdefault(name, []).append(by_class[name].author)
    return named, by_class, replaced


def _claims_of_cases(graph: ModelGraph, case_specs: Iterable[tuple[str, QuantizationSpec]]) -> dict[str, _Claim]:
    """Return the claim of the cases per node; raise an error if cases disagree."""
    agreed: dict[str, _Claim] = {}
    for case_name, spec in case_specs:
        own: dict[str, _Claim] = {}
        # Entries by class first: those by name overwrite them, as they do in the user's specification.
        for is_class in (True, False):
            for position, entry in enumerate(spec.layers):
                if entry.is_keras_class != is_class:
                    continue
                source = f"{case_name}, entry {position}"
                for node in _checked_nodes(graph, entry, source):
                    own[node.name] = _Claim(entry, case_name)
        for node_name, claim in own.items():
            _check_agreement(graph.node(node_name), agreed.get(node_name), claim)
            agreed.setdefault(node_name, claim)
    return agreed


def _check_agreement(node: Node, earlier: _Claim | None, later: _Claim) -> None:
    if earlier is None or _meaning(node, earlier.entry) == _meaning(node, later.entry):
        return
    raise PlacementConflictError(
        f"Two cases decide differently about layer {node.layer!r}: {earlier.author} says "
        f"{_describe(node, earlier.entry)}, {later.author} says {_describe(node, later.entry)}. Pass only one of "
        f"them, or decide yourself: an entry for {node.layer!r} in the quantization spec beats both."
    )


def _meaning(node: Node, entry: LayerConfig) -> tuple[object, ...]:
    # Without weights the flag has no effect, so cases that differ in it alone agree.
    weight = entry.quantize_weight and bool(node.weights)
    return (
        _indices(node, entry),
        weight,
        entry.quantize_output,
        entry.quantize_config,
    )


def _describe(node: Node, entry: LayerConfig) -> str:
    indices, weight, output, _ = _meaning(node, entry)
    return f"inputs {list(indices)}, weight {weight}, output {output}"  # type: ignore[call-overload]


def _indices(node: Node, entry: LayerConfig) -> tuple[int, ...]:
    if not entry.quantize_input:
        return ()
    if entry.quantization_index is None:
        return default_inputs(node)
    return tuple(sorted(set(entry.quantization_index)))


def _checked_nodes(graph: ModelGraph, entry: LayerConfig, source: str) -> list[Node]:
    """Return the nodes that an entry selects, after checking that they have what it quantizes."""
    nodes = select(graph, entry, source)
    for node in nodes:
        _check_sites(node, entry, source, graph)
    check_weight_names(nodes, entry.quantize_config, source)
    return nodes


def _check_sites(node: Node, entry: LayerConfig, source: str, graph: ModelGraph) -> None:
    """Raise an error if an entry quantizes something that the layer lacks; a pattern may select such layers."""
    # An entry that names a composite layer is about the layers inside, which need not all have every site.
    if entry.match == "exact" and entry.name in (node.layer, node.name) and not entry.is_keras_class:
        check_settings(node, entry.quantize_config, source)
        results = [graph.tensors[tensor] for tensor in node.outputs]
        if entry.quantize_output and not any(tensor.is_float for tensor in results):
            raise SpecError(
                f"{source}: the output of layer {node.layer!r} ({node.class_name}) holds {results[0].dtype} values, "
                "not real numbers, so it cannot be quantized. Received: quantize_output=True"
            )
        if node.is_model_input and entry.quantize_input and not entry.quantize_output:
            raise SpecError(
                f"{source}: {node.layer!r} is an input of the model; it has no inputs or weights of its own. Pass "
                "quantize_output=True to quantize the tensor for all its readers, or name the readers. "
                f"Received: {entry.label}"
            )
    for index in entry.quantization_index or ():
        if index >= len(node.inputs):
            raise SpecError(
                f"{source}: layer {node.layer!r} ({node.class_name}) has {len(node.inputs)} inputs, counted from 0, "
                f"so it has no input {index}. Received: quantization_index={entry.quantization_index}"
            )


def _from_claim(
    node: Node,
    claim: _Claim,
    replaced: tuple[str, ...],
    resolve: Resolver,
    indices: tuple[int, ...] | None = None,
) -> Decision:
    entry = claim.entry
    settings = None if entry.quantize_config is None else resolve(node, entry.quantize_config, claim.author)
    decision = Decision(
        input_indices=_indices(node, entry) if indices is None else indices,
        quantize_weight=entry.quantize_weight and _has_quantized_weights(node, settings),
        # A `QuantizeConfig` asks for the pair by returning a quantizer for the output; the entry's flag is not needed.
        quantize_output=entry.quantize_output or bool(settings and settings.get("quantize_output")),
        author=claim.author,
        reason="",
        replaced=replaced,
        settings=settings,
    )
    sites = _sites(node, decision.input_indices, weight=decision.quantize_weight, output=decision.quantize_output)
    verb = "leaves the layer in float" if decision.is_float else f"quantizes {sites}"
    how = f"entry for {entry.label}" if claim.author.startswith("spec[") else f"case {claim.author}"
    return dataclasses.replace(decision, reason=f"the {how} {verb}{_unused(decision)}{_weightless(node, claim)}")


def _has_quantized_weights(node: Node, settings: Settings | None) -> bool:
    default = find_named_default(node)
    names = default.weights if default is not None else {}
    return bool(weight_settings(settings, names))


def _unused(decision: Decision) -> str:
    """Return a note if settings are given for an output that is not quantized; else ""."""
    if decision.quantize_output or "output" not in (decision.settings or {}):
        return ""
    return "; its settings for the output wait for quantize_output=True"


def _weightless(node: Node, claim: _Claim) -> str:
    """Return a note if an entry for one layer switches off weights that the layer does not have; else ""."""
    entry = claim.entry
    named = entry.match == "exact" and not entry.is_keras_class and claim.author.startswith("spec[")
    only = not entry.quantize_weight and entry.quantize_input and entry.quantization_index is None
    if node.weights or not (named and only):
        return ""
    return "; it has no weights, so quantize_weight=False changes nothing (quantize_input=False leaves it in float)"


def _sites(node: Node, indices: tuple[int, ...], *, weight: bool, output: bool) -> str:
    sites = []
    if indices:
        every = len(indices) == len(node.inputs)
        sites.append("its input" if every and len(node.inputs) == 1 else f"inputs {list(indices)}")
    if weight:
        sites.append("its weights")
    if output:
        sites.append("its output")
    return " and ".join(sites)


def _from_spec(
    node: Node, claim: _Claim, case: _Claim | None, replaced: tuple[str, ...], mode: str, resolve: Resolver
) -> Decision:
    overruled = replaced or _overruled_default(node, mode)
    entry = claim.entry
    if case is None:
        return _from_claim(node, claim, overruled, resolve)
    if entry.is_keras_class and entry.quantize_input and entry.quantization_index is None and case.entry.quantize_input:
        decision = _from_claim(node, claim, overruled, resolve, indices=_indices(node, case.entry))
        return dataclasses.replace(decision, reason=f"{decision.reason}; which inputs: {case.author}")
    return _from_claim(node, claim, (*overruled, case.author), resolve)


def _overruled_default(node: Node, mode: str) -> tuple[str, ...]:
    return ("default",) if mode == "full" and find_default(node) is not None else ()


def _from_default(node: Node, mode: str) -> Decision:
    """Return the decision of the default; one object for all plans, until another default is registered."""
    default = find_default(node)
    known = node.once(_default_decisions)
    if mode not in known or known[mode][0] is not default:
        known[mode] = (default, _decision_of(default, node, mode))
    return known[mode][1]


def _default_decisions(node: Node) -> dict[str, tuple[NodeDefault | None, Decision]]:  # noqa: ARG001 - begins empty
    """Return the default of a node and the decision that follows, by mode, for `_from_default` to read and set."""
    return {}


def _decision_of(default: NodeDefault | None, node: Node, mode: str) -> Decision:
    # In partial mode too: these weights are integers already, and stay on the grid that Keras gave them.
    if mode == "partial" and node.settings.get(INTEGERS):
        return Decision((), True, False, "default", "Keras has quantized its weights already")  # noqa: FBT003
    if mode == "partial":
        return _float("partial mode: neither the spec nor a case names the layer")
    if default is None:
        return _float(why_no_default(node))
    indices = default_inputs(node) if default.quantize_input else ()
    if not indices and not default.quantize_weight:
        return _float(f"off by default for {node.class_name}; name it to switch it on")
    sites = _sites(node, indices, weight=default.quantize_weight, output=False)
    reasons = [f"the default for {node.class_name} quantizes {sites}", why_float_inside(node)]
    return Decision(
        input_indices=indices,
        quantize_weight=default.quantize_weight,
        quantize_output=False,
        author="default",
        reason="; ".join(filter(None, reasons)),
    )


def _float(reason: str) -> Decision:
    return Decision((), quantize_weight=False, quantize_output=False, author="default", reason=reason)
