"""`explain_plan`: apply a runtime's rule set to every layer of a plan."""

from __future__ import annotations

from qdq_workbench.placement.plan import PlacementPlan
from qdq_workbench.runtimes.explanation import Explanation
from qdq_workbench.runtimes.measured import Latency, measured_islands
from qdq_workbench.runtimes.measured_edges import judged_alone
from qdq_workbench.runtimes.rule_sets import layer_explanations


def explain_plan(plan: PlacementPlan, latency: Latency | None = None, *, opset: int | None = None) -> Explanation:
    """Return how the runtime of a plan executes every layer.

    Args:
        plan: The plan; it is not changed.
        latency: A measurement of the plan's file beside the float file.
        opset: The opset of the plan's ONNX file; None for the one that `export_onnx` chooses.

    Raises:
        TargetError: If the plan's target has no rule set.
        SpecError: If the measurement does not fit the plan.
    """
    layers = layer_explanations(plan, opset)
    if latency is None:
        return Explanation(plan.target, layers, plan, opset=opset)
    islands = measured_islands(plan, layers, latency)
    return Explanation(plan.target, layers, plan, islands, judged_alone(plan, islands, latency), opset)
