"""Export: a cut float Keras model and its encodings become a clean QDQ ONNX file."""

from __future__ import annotations

from qdq_workbench.export.build_onnx import build_onnx
from qdq_workbench.export.encodings import BiasEncoding, Encoding, encode_bias, raise_scale_for_bias
from qdq_workbench.export.keras_side.cut_model import CutModel

__all__ = ["BiasEncoding", "CutModel", "Encoding", "build_onnx", "encode_bias", "raise_scale_for_bias"]
