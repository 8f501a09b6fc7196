"""Reports of a run for sharing: accuracy curves and a self-contained HTML page."""

from __future__ import annotations

from qdq_workbench.report.curves import Curve, Level, curves_figure, write_curves_html, write_curves_png
from qdq_workbench.report.html_report import (
    Check,
    Figure,
    FileResult,
    RunReport,
    installed_versions,
    render_html_report,
    write_html_report,
)
from qdq_workbench.report.sensitivity import sensitivity_figure

__all__ = [
    "Check",
    "Curve",
    "Figure",
    "FileResult",
    "Level",
    "RunReport",
    "curves_figure",
    "installed_versions",
    "render_html_report",
    "sensitivity_figure",
    "write_curves_html",
    "write_curves_png",
    "write_html_report",
]
