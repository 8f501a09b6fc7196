"""The kernels that a runtime executes for a file, and their times by layer."""

from __future__ import annotations

from qdq_workbench.profiling.latency import Gain, LayerLatency, OtherLatency
from qdq_workbench.profiling.profile_onnx import profile_onnx
from qdq_workbench.profiling.runtime_graph import RuntimeGraph, RuntimeKernel, read_kernels

__all__ = [
    "Gain",
    "LayerLatency",
    "OtherLatency",
    "RuntimeGraph",
    "RuntimeKernel",
    "profile_onnx",
    "read_kernels",
]
