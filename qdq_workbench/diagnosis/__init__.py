"""Why a quantized model is worse than its float model: causes with their evidence, and fixes that are measured."""

from qdq_workbench.diagnosis.diagnose import diagnose
from qdq_workbench.diagnosis.report import Cause, Diagnosis

__all__ = ["Cause", "Diagnosis", "diagnose"]
