"""Verification of exported files: their structure against the plan, their numbers in a runtime against Keras."""

from __future__ import annotations

from qdq_workbench.verification.integer_kernels import IntegerKernels, count_integer_kernels
from qdq_workbench.verification.structure import (
    DequantizedConstant,
    FileStructure,
    QDQPair,
    compare_structure,
    expected_structure,
    read_structure,
)

__all__ = [
    "DequantizedConstant",
    "FileStructure",
    "IntegerKernels",
    "QDQPair",
    "compare_structure",
    "count_integer_kernels",
    "expected_structure",
    "read_structure",
]
