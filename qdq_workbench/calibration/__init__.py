"""Post-training ranges: run data through the float model and record the range of every tensor."""

from __future__ import annotations

from qdq_workbench.calibration.calibrate import calibrate
from qdq_workbench.calibration.result import CalibrationResult

__all__ = ["CalibrationResult", "calibrate"]
