"""`explain_plan`: apply a runtime's rule set to every layer of a plan."""

from __future__ import annotations

from qdq_workbench.placement.plan import PlacementPlan
from qdq_workbench.placement.targets import Target, get_target
from qdq_workbench.runtimes.explanation import Explanation
from qdq_workbench.runtimes.rule_sets import layer_explanations


def explain_plan(plan: PlacementPlan, target: str | Target) -> Explanation:
    """Return what a runtime will do with every layer of a plan.

    A plan made for another target is planned anew for this one first, because the pairs differ.

    Args:
        plan: The plan; it is not changed.
        target: The runtime.

    Raises:
        TargetError: If there is no such target, or nothing is known about what it does.
    """
    target = get_target(target)
    planned, layers = layer_explanations(plan, target)
    return Explanation(target.name, layers, planned)
