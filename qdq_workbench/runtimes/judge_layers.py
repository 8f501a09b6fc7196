"""The loop over the calls of a plan that all rule sets share."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

from qdq_workbench.graph.float_inside import float_inside
from qdq_workbench.graph.model_graph import ModelGraph, Node
from qdq_workbench.graph.op_kinds import pads_with_zeros
from qdq_workbench.placement.unknown_layers import advice_on
from qdq_workbench.runtimes.facts import PlanFacts
from qdq_workbench.runtimes.verdict import Fix, LayerExplanation, Rule, Status

_NOTHING = ("-NO-KERNEL", "-FLOAT")  # endings of the id of a runtime's rule for calls without an integer kernel
_NO_FIX: Sequence[Fix | str] = ()
#: The rule, the reason, and the remedies: entries of a specification, or a text on what to change in the model.
Verdict = tuple[str, str, Sequence[Fix | str]]
SPLIT_ACTIVATIONS = "quantize split_activations(model) to make that tensor visible"


def judge_layers(
    facts: PlanFacts,
    judge: Callable[[PlanFacts, Node, set[str]], Verdict],
    rules: Mapping[str, Rule],
    good: Collection[str],
    *,
    prefix: str = "",
    absorbing: Collection[str] | None = None,
) -> Iterator[LayerExplanation]:
    """Yield the explanation of every call of a plan, with the costs of the call; weights belong to the first call.

    `judge` returns the verdict on a call; its last argument holds the names of the earlier calls whose kernels may
    absorb it. `good` are the ids of the rules whose calls run in INT8, `absorbing` those whose kernels may absorb later
    calls, None for `good`, and `prefix` is what `judge` leaves out of the ids.
    """
    integer: set[str] = set()
    vanishing = next(id_ for id_ in rules if id_.endswith("-VANISHES"))
    nothing = next(id_ for id_ in rules if id_.endswith(_NOTHING))
    absorbing = good if absorbing is None else absorbing
    for node in facts.graph.nodes:
        if node.is_model_input:
            continue
        lowered = facts.plan.lowering.nodes[node.name]
        # A constant is absorbed, too, but it is a part of a bias: its verdict is that of the kernel.
        if lowered.step == "vanishes" or (lowered.step == "absorbed" and pads_with_zeros(node)):
            rule_id, reason, fix = vanishing, lowered.reason, _NO_FIX
        else:
            name, reason, fix = judge(facts, node, integer)
            rule_id = prefix + name
        # An absorbed constant is joined to integers.
        inside, help_ = ("", "") if lowered.step == "absorbed" else float_inside(node)
        if not inside:
            inside, help_ = facts.why_axis(node)
        if not inside and any(not isinstance(remedy, str) for remedy in fix):
            inside, help_ = facts.why_not_real(node), ""
        unpaired = facts.why_unpaired(node) if fix else ""
        if unpaired:
            reason, fix = f"{reason}: {unpaired}", _NO_FIX
        # No pair around the layer changes this, so it overrules the verdict, fixes included.
        if inside:
            rule_id, reason, fix = nothing, inside, [help_]
            if facts.blocks(node) is not None:
                reason += "; its weights in blocks stay integers in memory"
        # A layer without an operator absorbs nothing: what stands before it may.
        if rule_id in absorbing and (rule_id != vanishing or facts.graph.producer(node.inputs[0]).name in integer):
            integer.add(node.name)
        yield _entry(facts, node, rules[rule_id], "int8" if rule_id in good else "float", reason, fix)


def _entry(
    facts: PlanFacts, node: Node, rule: Rule, status: Status, reason: str, fix: Sequence[Fix | str]
) -> LayerExplanation:
    """Return the entry of a call; that of the last explanation if it is equal.

    Plan after plan nearly all calls are judged alike, and making hundreds of objects after every click of a user
    interface is slow, and sends the garbage collector through all that the session holds.
    """
    entries = tuple(item for item in fix if not isinstance(item, str)) if fix else ()
    words = [item for item in fix if isinstance(item, str)] if fix else []
    if status == "float" and not words:
        words = [advice_on(node)]
    advice = "; ".join(filter(None, words)) if words else ""
    macs, stored, as_integers = facts.cost(node)
    last = facts.graph.once(_last_entries)
    known = last.get(node.name)
    # All that does not follow from the call and the rule; ids of rules are unique over the runtimes.
    variable = (rule.id, reason, entries, as_integers, advice)
    if known is None or variable != (known.rule, known.reason, known.fix, known.int8_bytes, known.advice):
        last[node.name] = known = LayerExplanation(
            layer=node.layer,
            class_name=node.class_name,
            status=status,
            rule=rule.id,
            reason=reason,
            documentation=rule.documentation,
            fix=entries,
            macs=macs,
            bytes=stored,
            int8_bytes=as_integers,
            int8_macs=macs if status == "int8" else 0,
            advice=advice,
        )
    return known


def _last_entries(graph: ModelGraph) -> dict[str, LayerExplanation]:  # noqa: ARG001 - begins empty for any graph
    """Return the entries of the last explanation of a graph by the names of the calls, for `_entry` to read and set."""
    return {}
