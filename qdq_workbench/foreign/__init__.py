"""ONNX files of any exporter: lint rules, import of placement and ranges, comparison of two files."""

from __future__ import annotations

from qdq_workbench.foreign.compare import Comparison, compare
from qdq_workbench.foreign.import_qdq import ImportedQDQ, import_qdq
from qdq_workbench.foreign.lint import LintReport, lint_onnx

__all__ = ["Comparison", "ImportedQDQ", "LintReport", "compare", "import_qdq", "lint_onnx"]
