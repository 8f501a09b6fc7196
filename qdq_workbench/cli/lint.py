"""`qdq-workbench lint`: check the Q/DQ placement of any ONNX file."""

from __future__ import annotations

import argparse

from qdq_workbench.cli.inputs import require_file
from qdq_workbench.cli.outcome import Command, Outcome


def _configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE", help="an ONNX file with QuantizeLinear and DequantizeLinear nodes")


def _run(options: argparse.Namespace) -> Outcome:
    import qdq_workbench as qdq

    require_file(options.file)
    report = qdq.lint_onnx(options.file)
    return Outcome(report.summary(), report.to_dict(), passed=report.passed)


LINT = Command("lint", "Check the Q/DQ placement of any ONNX file.", _configure, _run, reads_models=False)
