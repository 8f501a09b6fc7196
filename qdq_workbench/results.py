"""The types that the functions at the root return, for annotations and `isinstance`."""

from __future__ import annotations

from qdq_workbench.analysis.search_result import SearchResult, SearchStep
from qdq_workbench.analysis.sensitivity_report import SensitivityEntry, SensitivityReport
from qdq_workbench.calibration.result import CalibrationResult
from qdq_workbench.conversion.engine.quantized_model import QuantizedModel
from qdq_workbench.export.firmware.save_firmware import FirmwareReport
from qdq_workbench.export.litert.tflite_export import TFLiteReport
from qdq_workbench.export.report import ExportReport
from qdq_workbench.graph.model_graph import Node
from qdq_workbench.post_training.rounding.report import RoundedUnit, RoundingReport
from qdq_workbench.profiling.latency import LatencyReport
from qdq_workbench.report.latency import latency_figure
from qdq_workbench.report.pareto import pareto_figure
from qdq_workbench.report.sensitivity import sensitivity_figure
from qdq_workbench.runtimes.explanation import Explanation
from qdq_workbench.runtimes.measured import Island
from qdq_workbench.runtimes.measured_edges import IslandEdge
from qdq_workbench.verification.report import VerificationReport

__all__ = [
    "CalibrationResult",
    "Explanation",
    "ExportReport",
    "FirmwareReport",
    "Island",
    "IslandEdge",
    "LatencyReport",
    "Node",
    "QuantizedModel",
    "RoundedUnit",
    "RoundingReport",
    "SearchResult",
    "SearchStep",
    "SensitivityEntry",
    "SensitivityReport",
    "TFLiteReport",
    "VerificationReport",
    "latency_figure",
    "pareto_figure",
    "sensitivity_figure",
]
