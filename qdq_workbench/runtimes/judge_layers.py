"""The loop over the calls of a plan that all rule sets share."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

from qdq_workbench.graph.float_inside import float_inside
from qdq_workbench.graph.model_graph import Node
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
    """Yield the explanation of every call of a plan.

    Args:
        facts: The plan, planned for the runtime.
        judge: Returns the verdict on a call. Its last argument holds the names of the earlier calls whose kernels may
            absorb it.
        rules: The runtime's rules by id.
        good: Ids of the rules whose calls run in INT8.
        prefix: The prefix of the rules' ids that `judge` leaves out.
        absorbing: Ids of the rules whose kernels may absorb later calls; None for those of `good`.
    """
    integer: set[str] = set()
    for node in facts.graph.nodes:
        if node.class_name == "InputLayer" and not node.is_operation:
            continue
        lowered = facts.plan.lowering.nodes[node.name]
        if lowered.step == "vanishes" or (lowered.step == "absorbed" and pads_with_zeros(node)):
            rule_id = next(id_ for id_ in rules if id_.endswith("-VANISHES"))
            reason, fix = lowered.reason, _NO_FIX
        else:
            name, reason, fix = judge(facts, node, integer)
            rule_id = prefix + name
        inside, help_ = next((found for found in (float_inside(node), facts.why_axis(node)) if found[0]), ("", ""))
        if inside:
            rule_id = next(id_ for id_ in rules if id_.endswith(_NOTHING))
            reason, fix = inside, [help_]
            if facts.blocks(node) is not None:
                reason += "; its weights in blocks stay integers in memory"
        if rule_id in (good if absorbing is None else absorbing):
            integer.add(node.name)
        status: Status = "int8" if rule_id in good else "float"
        entries = tuple(item for item in fix if not isinstance(item, str))
        words = [item for item in fix if isinstance(item, str)] or [advice_on(node)] * (status == "float")
        yield LayerExplanation(
            layer=node.layer,
            class_name=node.class_name,
            status=status,
            rule=rule_id,
            reason=reason,
            documentation=rules[rule_id].documentation,
            fix=entries,
            advice="; ".join(filter(None, words)),
        )
