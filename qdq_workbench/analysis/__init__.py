"""Analysis of quantization by layer: metrics, sensitivity sweeps, placement searches, the cost of layers."""

from __future__ import annotations

from qdq_workbench.analysis.cost import LayerCost, layer_costs
from qdq_workbench.analysis.metrics import Metric
from qdq_workbench.analysis.plan_scores import PlanScores

__all__ = ["LayerCost", "Metric", "PlanScores", "layer_costs"]
