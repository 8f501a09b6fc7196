"""`qdq-workbench explain`: which layers an inference runtime runs in INT8, and why the others stay in float."""

from __future__ import annotations

import argparse
import pathlib
from typing import Any

from qdq_workbench.cli.inputs import TARGETS, load_model, load_plan, require_file, target_name
from qdq_workbench.cli.outcome import Command, Outcome


def _configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "subject",
        metavar="FILE",
        help="a model, a quantized model (.keras, .h5), a plan (.json) or an exported file (.onnx)",
    )
    parser.add_argument(
        "--target",
        type=target_name,
        choices=TARGETS,
        help="default: what the plan, the quantized model or the file was made for, with --latency what the measured "
        "file was exported for; for a float model onnxruntime",
    )
    parser.add_argument(
        "--opset",
        type=int,
        metavar="N",
        help="the opset of the ONNX file, on which the kernels for 4-bit weights depend; default: that of the exported "
        "file, otherwise the one that `qdq-workbench export` chooses",
    )
    parser.add_argument(
        "--latency",
        metavar="FILE",
        help="a report of `qdq-workbench profile --baseline ... -o report.json`: name what costs more than it saves",
    )


def _run(options: argparse.Namespace) -> Outcome:
    import qdq_workbench as qdq

    subject = _subject(options.subject)
    latency = qdq.LatencyReport.load(options.latency) if options.latency else None
    explanation = qdq.explain(subject, target=options.target, latency=latency, opset=options.opset)
    lines = [_about(subject, explanation.target, options.target, latency), explanation.summary()]
    return Outcome("\n".join(lines), explanation.to_dict())


def _subject(path: str) -> Any:
    """Return the plan of a plan file, what an exported file holds, or the model of any other file."""
    suffix = pathlib.Path(path).suffix.lower()
    if suffix == ".onnx":
        import qdq_workbench as qdq

        require_file(path)
        return qdq.files.read_layers(path)
    return load_plan(path) if suffix == ".json" else load_model(path)


def _about(subject: Any, target: str, asked: str | None, latency: Any) -> str:
    """Return a sentence that names the explained runtime and the reason for its choice."""
    # A plan has placements, a quantized model has a plan, a float model has neither.
    own = getattr(subject if hasattr(subject, "placements") else getattr(subject, "plan", None), "target", None)
    anew = "" if own in (None, target) else f"; the plan was made for {own}, and is planned anew"
    if asked is not None:
        return f"Explained for {target}, as asked{anew}."
    if own == target:
        why = "which the plan was made for"
    else:
        measured = latency is not None and latency.target is not None
        why = "which the measured file was exported for" if measured else "which a float model is planned for here"
    return f"Explained for {target}, {why}{anew}; --target explains another runtime."


EXPLAIN = Command("explain", "Say which layers a runtime will run in INT8, and why not the others.", _configure, _run)
