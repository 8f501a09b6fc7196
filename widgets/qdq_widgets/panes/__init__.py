"""The panes of the bench, one per file and independent of each other; a row here, in tab order, registers a pane."""

from __future__ import annotations

from qdq_widgets.pane import Pane
from qdq_widgets.panes.calibration import CalibrationPane
from qdq_widgets.panes.cases import CasesPane
from qdq_widgets.panes.corrections import CorrectionsPane
from qdq_widgets.panes.diagnosis import DiagnosisPane
from qdq_widgets.panes.export import ExportPane
from qdq_widgets.panes.files import FilesPane
from qdq_widgets.panes.histograms import HistogramsPane
from qdq_widgets.panes.history import HistoryPane
from qdq_widgets.panes.inspector import InspectorPane
from qdq_widgets.panes.netron import NetronPane
from qdq_widgets.panes.runtime import RuntimePane
from qdq_widgets.panes.sensitivity import SensitivityPane
from qdq_widgets.panes.spec import SpecPane
from qdq_widgets.panes.speed import SpeedPane
from qdq_widgets.panes.training import TrainingPane
from qdq_widgets.panes.variants import VariantsPane

SIDE: tuple[type[Pane], ...] = (InspectorPane, SpecPane, CasesPane, RuntimePane, HistoryPane, VariantsPane)
"""Beside the graph."""

WORK: tuple[type[Pane], ...] = (
    CalibrationPane,
    CorrectionsPane,
    HistogramsPane,
    SensitivityPane,
    DiagnosisPane,
    SpeedPane,
    TrainingPane,
    ExportPane,
    NetronPane,
    FilesPane,
)
"""Below the graph."""
