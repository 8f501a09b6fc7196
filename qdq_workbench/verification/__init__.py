"""Verification: what an exported file really holds, and what a runtime really makes of it."""

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
