"""Export: a cut float Keras model and its encodings become a clean QDQ ONNX file."""

from __future__ import annotations

from qdq_workbench.export.build_onnx import build_onnx
from qdq_workbench.export.cut_model import CutModel
from qdq_workbench.export.encodings import Encoding, raise_scale_for_bias

__all__ = ["CutModel", "Encoding", "build_onnx", "raise_scale_for_bias"]
