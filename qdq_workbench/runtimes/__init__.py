"""Explains how an inference runtime executes a plan; the plan is never changed."""

from __future__ import annotations

from qdq_workbench.runtimes.explain import explain_plan
from qdq_workbench.runtimes.explanation import Explanation
from qdq_workbench.runtimes.verdict import LayerExplanation, Rule

__all__ = ["Explanation", "LayerExplanation", "Rule", "explain_plan"]
