"""How long a file takes in ONNX Runtime, layer by layer."""

from __future__ import annotations

from qdq_workbench.profiling.latency import Gain, LayerLatency, OtherLatency
from qdq_workbench.profiling.profile_onnx import profile_onnx

__all__ = ["Gain", "LayerLatency", "OtherLatency", "profile_onnx"]
