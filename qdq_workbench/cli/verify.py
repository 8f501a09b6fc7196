"""`qdq-workbench verify`: does an exported file do what its plan and its Keras model say?"""

from __future__ import annotations

import argparse

from qdq_workbench.cli.inputs import load_arrays, load_model
from qdq_workbench.cli.outcome import Command, Outcome


def _configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE", help="an ONNX file that `qdq-workbench export` wrote")
    parser.add_argument("--model", metavar="Q_MODEL", help="the quantized Keras model that the file was made from")
    parser.add_argument("--data", metavar="FILE", help="model inputs to compare on, .npy or .npz")


def _run(options: argparse.Namespace) -> Outcome:
    import qdq_workbench as qdq

    report = qdq.verify_onnx(
        options.file,
        load_model(options.model) if options.model else None,
        data=load_arrays(options.data) if options.data else None,
    )
    return Outcome(report.summary(), report.to_dict(), passed=report.passed)


VERIFY = Command("verify", "Check an exported file against its plan and its Keras model.", _configure, _run)
