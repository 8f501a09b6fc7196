"""The targets: the needs of each inference runtime for a QDQ file, as data; one file per runtime."""

from __future__ import annotations

from qdq_workbench.placement.targets import litert, onnxruntime, openvino, tensorrt
from qdq_workbench.placement.targets.target import Target, get_target, is_registered, target_names

__all__ = ["Target", "get_target", "is_registered", "litert", "onnxruntime", "openvino", "target_names", "tensorrt"]
