"""A framework-independent graph of a model: nodes (calls), the tensors between them, and tables about them."""

from __future__ import annotations

from qdq_workbench.graph.model_graph import ModelGraph, Node, Part, Tensor, Weight

__all__ = ["ModelGraph", "Node", "Part", "Tensor", "Weight"]
