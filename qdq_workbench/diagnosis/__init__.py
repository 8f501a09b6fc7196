"""Diagnosis of the loss of a quantized model: causes with their evidence, and fixes with their measured gain."""

from qdq_workbench.diagnosis.diagnose import diagnose
from qdq_workbench.diagnosis.report import Cause, Diagnosis

__all__ = ["Cause", "Diagnosis", "diagnose"]
