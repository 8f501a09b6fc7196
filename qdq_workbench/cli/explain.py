"""`qdq-workbench explain`: which layers an inference runtime will run in INT8, and what keeps the others in float."""

from __future__ import annotations

import argparse
import pathlib

from qdq_workbench.cli.inputs import TARGETS, load_model, load_plan
from qdq_workbench.cli.outcome import Command, Outcome


def _configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("subject", metavar="FILE", help="a model, a quantized model (.keras, .h5) or a plan (.json)")
    parser.add_argument("--target", choices=TARGETS, default="onnxruntime", help="default: onnxruntime")
    parser.add_argument(
        "--latency",
        metavar="FILE",
        help="a report of `qdq-workbench profile --baseline ... -o report.json`: name what costs more than it saves",
    )


def _run(options: argparse.Namespace) -> Outcome:
    import qdq_workbench as qdq

    is_plan = pathlib.Path(options.subject).suffix.lower() == ".json"
    subject = load_plan(options.subject) if is_plan else load_model(options.subject)
    latency = qdq.LatencyReport.load(options.latency) if options.latency else None
    explanation = qdq.explain(subject, target=options.target, latency=latency)
    return Outcome(explanation.summary(), explanation.to_dict())


EXPLAIN = Command("explain", "Say which layers a runtime will run in INT8, and why not the others.", _configure, _run)
