"""ONNX files that others made: findings, placement and ranges read from them, outputs side by side."""

from __future__ import annotations

from qdq_workbench.verification.compare import Comparison, compare
from qdq_workbench.verification.import_qdq import ImportedQDQ, import_qdq
from qdq_workbench.verification.lint import LintReport, lint_onnx

__all__ = ["Comparison", "ImportedQDQ", "LintReport", "compare", "import_qdq", "lint_onnx"]
