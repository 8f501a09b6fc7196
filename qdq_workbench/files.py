"""Files other than the quantized ONNX or LiteRT model: models, integer weights, firmware, float ONNX."""

from __future__ import annotations

from qdq_workbench.conversion.files.integer_files import load_integer_weights, save_integer_weights
from qdq_workbench.conversion.files.load_model import load_model
from qdq_workbench.export.firmware.save_firmware import save_firmware
from qdq_workbench.export.onnx_export import export_float_onnx

__all__ = ["export_float_onnx", "load_integer_weights", "load_model", "save_firmware", "save_integer_weights"]
