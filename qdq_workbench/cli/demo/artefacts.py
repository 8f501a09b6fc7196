"""The files that the demo writes in addition to models and ONNX files: plan, figures, curves, report."""

from __future__ import annotations

import dataclasses
import json
import pathlib
from collections.abc import Sequence
from typing import Any

from qdq_workbench._files import write_text
from qdq_workbench.cli.demo.figures import DemoFigures
from qdq_workbench.report import (
    Curve,
    FileResult,
    Level,
    RunReport,
    installed_versions,
    write_curves_html,
    write_curves_png,
    write_html_report,
)


@dataclasses.dataclass(frozen=True)
class ExportedFile:
    """One exported file with its two reports.

    Args:
        target: The target that it was exported for.
        path: Its path.
        export: The `ExportReport`.
        verification: The `VerificationReport`.
    """

    target: str
    path: pathlib.Path
    export: Any
    verification: Any


@dataclasses.dataclass(frozen=True)
class FineTuned:
    """Test accuracies from 0 to 1, before fine-tuning and after each epoch.

    Args:
        control: Accuracies of the float model.
        quantized: Accuracies of the quantized model.
    """

    control: list[float]
    quantized: list[float]


def write_artefacts(
    folder: pathlib.Path,
    title: str,
    q_model: Any,
    figures: DemoFigures,
    tuned: FineTuned,
    files: Sequence[ExportedFile],
) -> list[pathlib.Path]:
    """Write plan.json, figures.json, curves.png, curves.html and report.html to a folder, and return their paths."""
    epochs = tuple(range(len(tuned.control)))
    curves = [
        Curve("float control, fine-tuned alike", epochs, tuple(tuned.control)),
        Curve("quantization-aware training", epochs, tuple(tuned.quantized)),
    ]
    levels = [Level("FP32 before fine-tuning", figures.fp32)]
    versions = installed_versions()
    record = {**figures.to_dict(), "curves": [curve.to_dict() for curve in curves], "versions": versions}
    run = RunReport(
        title=title,
        verdict=figures.verdict(),
        passed=figures.passed,
        plan=q_model.plan,
        figures=figures.cards(),
        checks=figures.checks(),
        curves=curves,
        levels=levels,
        ranges=q_model.recorded_ranges,
        files=[
            FileResult(
                target=file.target,
                path=file.path.name,
                export=file.export.summary(),
                verification=file.verification.summary(),
                passed=file.verification.passed,
            )
            for file in files
        ],
        versions=versions,
    )
    return [
        write_text(folder / "plan.json", json.dumps(q_model.plan.to_dict(), indent=2)),
        write_text(folder / "figures.json", json.dumps(record, indent=2)),
        write_curves_png(folder / "curves.png", curves, levels),
        write_curves_html(folder / "curves.html", curves, levels),
        write_html_report(run, folder / "report.html"),
    ]
