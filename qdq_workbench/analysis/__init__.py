"""What quantization costs a model, layer by layer: metrics, sensitivity sweeps, searches, the cost of layers."""

from __future__ import annotations

from qdq_workbench.analysis.cost import LayerCost, layer_costs
from qdq_workbench.analysis.metrics import Metric

__all__ = ["LayerCost", "Metric", "layer_costs"]
