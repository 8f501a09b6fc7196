"""A framework-free picture of a model: nodes (call events), tensors between them, and what they are."""

from __future__ import annotations

from qdq_workbench.graph.model_graph import ModelGraph, Node, Part, Tensor, Weight

__all__ = ["ModelGraph", "Node", "Part", "Tensor", "Weight"]
