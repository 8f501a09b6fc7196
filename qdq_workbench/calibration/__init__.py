"""Post-training calibration: run data through the float model and record the range of every activation tensor."""

from __future__ import annotations

from qdq_workbench.calibration.calibrate import apply_calibration, calibrate
from qdq_workbench.calibration.methods import calibration_methods
from qdq_workbench.calibration.result import CalibrationResult
from qdq_workbench.calibration.values import tensor_values, weight_values

__all__ = [
    "CalibrationResult",
    "apply_calibration",
    "calibrate",
    "calibration_methods",
    "tensor_values",
    "weight_values",
]
