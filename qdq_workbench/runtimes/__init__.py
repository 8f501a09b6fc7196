"""What an inference runtime will do with a plan: never alters it, only explains."""

from __future__ import annotations

from qdq_workbench.runtimes.explain import explain_plan
from qdq_workbench.runtimes.explanation import Explanation
from qdq_workbench.runtimes.verdict import LayerExplanation, Rule

__all__ = ["Explanation", "LayerExplanation", "Rule", "explain_plan"]
