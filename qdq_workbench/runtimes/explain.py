"""`explain_plan`: apply a runtime's rule set to every layer of a plan."""

from __future__ import annotations

from qdq_workbench.placement.plan import PlacementPlan
from qdq_workbench.placement.planner import meant_target
from qdq_workbench.placement.targets import Target
from qdq_workbench.runtimes.explanation import Explanation
from qdq_workbench.runtimes.measured import Latency, measured_islands
from qdq_workbench.runtimes.measured_edges import judged_alone
from qdq_workbench.runtimes.rule_sets import layer_explanations


def explain_plan(
    plan: PlacementPlan, target: str | Target | None, latency: Latency | None = None, *, opset: int | None = None
) -> Explanation:
    """Return how a runtime executes every layer of a plan.

    A plan made for another target is first replanned for this one, because the pairs differ.

    Args:
        plan: The plan; it is not changed.
        target: The runtime; None, or the name of the plan's own target, for that.
        latency: A measurement of the plan's file beside the float file.
        opset: The opset of the plan's ONNX file; None for the one that `export_onnx` chooses.

    Raises:
        TargetError: If there is no such target, or it has no rule set.
        SpecError: If the measurement does not fit the plan.
    """
    target = meant_target(plan, target)
    planned, layers = layer_explanations(plan, target, opset)
    if latency is None:
        return Explanation(target.name, layers, planned, opset=opset)
    islands = measured_islands(planned, layers, latency)
    return Explanation(target.name, layers, planned, islands, judged_alone(planned, islands, latency), opset)
