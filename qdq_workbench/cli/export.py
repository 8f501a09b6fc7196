"""`qdq-workbench export`: from a calibrated quantized model to a clean QDQ ONNX file."""

from __future__ import annotations

import argparse

from qdq_workbench.cli.inputs import TARGETS, load_model
from qdq_workbench.cli.outcome import Command, Outcome


def _configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", metavar="Q_MODEL", help="a calibrated quantized model, .keras")
    parser.add_argument("-o", "--output", metavar="FILE", required=True, help="the ONNX file")
    parser.add_argument("--target", choices=TARGETS, help="default: the target that the model was quantized for")
    parser.add_argument("--opset", type=int, help="ONNX operator set; default: the target's")
    parser.add_argument("--fixed-batch", action="store_true", help="give the file a batch size of 1")


def _run(options: argparse.Namespace) -> Outcome:
    import qdq_workbench as qdq

    report = qdq.export_onnx(
        load_model(options.model),
        options.output,
        target=options.target,
        opset=options.opset,
        dynamic_batch=not options.fixed_batch,
    )
    return Outcome(report.summary(), report.to_dict())


EXPORT = Command("export", "Export a quantized model to a clean QDQ ONNX file.", _configure, _run)
