"""Files: models, integer weights, firmware, float ONNX; the contents of exported files; atomic writes, JSON, stops."""

from __future__ import annotations

from qdq_workbench._documents import parse_json
from qdq_workbench._files import lock_folder, write_atomically
from qdq_workbench._interrupts import stoppable
from qdq_workbench._scratch import scratch_folder
from qdq_workbench.analysis.file_score import FileScore, score_file
from qdq_workbench.conversion.files.integer_files import load_integer_weights, save_integer_weights
from qdq_workbench.conversion.files.load_model import load_model
from qdq_workbench.conversion.files.training_checkpoint import TrainingCheckpoint
from qdq_workbench.export.firmware.save_firmware import save_firmware
from qdq_workbench.export.onnx_export import export_float_onnx
from qdq_workbench.verification.file_layers import FileGrid, FileLayers, read_layers
from qdq_workbench.verification.verify_tflite import verify_tflite

__all__ = [
    "FileGrid",
    "FileLayers",
    "FileScore",
    "TrainingCheckpoint",
    "export_float_onnx",
    "load_integer_weights",
    "load_model",
    "lock_folder",
    "parse_json",
    "read_layers",
    "save_firmware",
    "save_integer_weights",
    "score_file",
    "scratch_folder",
    "stoppable",
    "verify_tflite",
    "write_atomically",
]
