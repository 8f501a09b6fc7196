"""ONNX files that others made: findings, placement and ranges read from them, outputs side by side."""

from __future__ import annotations

from qdq_workbench.foreign.compare import Comparison, compare
from qdq_workbench.foreign.import_qdq import ImportedQDQ, import_qdq
from qdq_workbench.foreign.lint import LintReport, lint_onnx

__all__ = ["Comparison", "ImportedQDQ", "LintReport", "compare", "import_qdq", "lint_onnx"]
