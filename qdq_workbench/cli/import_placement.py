"""`qdq-workbench import`: the Q/DQ placement of any ONNX file, as a specification for a Keras model."""

from __future__ import annotations

import argparse
import dataclasses
from typing import Any

from qdq_workbench.cli.inputs import load_model, require_file
from qdq_workbench.cli.outcome import Command, Outcome, working
from qdq_workbench.cli.outputs import SPEC, check_output
from qdq_workbench.errors import SpecError


def _configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE", help="an ONNX file with Q/DQ pairs, of any origin")
    parser.add_argument("--model", metavar="MODEL", help="the float Keras model of the same network")
    parser.add_argument(
        "-o",
        "--output",
        metavar="FILE",
        help="write the spec that places the pairs there (--mode partial), .yaml or .json",
    )


def _run(options: argparse.Namespace) -> Outcome:
    import qdq_workbench as qdq

    check_output(options.output, SPEC)
    if options.output and not options.model:
        raise SpecError(
            "A spec is for a Keras model: give the float model of the same network with --model. "
            f"Received: --output {options.output}"
        )
    require_file(options.file)
    model = load_model(options.model) if options.model else None
    with working(f"Reading {options.file}"):
        imported = qdq.import_qdq(options.file, model)
    text = imported.summary()
    if options.output:
        imported.spec.save(options.output)
        text += f"\nWrote {options.output}; use it with: --mode partial --spec {options.output}"
    return Outcome(text, _as_dict(imported), passed=model is None or not imported.unmatched)


def _as_dict(imported: Any) -> dict[str, Any]:
    tensors = []
    for tensor in imported.tensors:
        fields = dataclasses.asdict(tensor)
        del fields["signature"]  # another number in every process
        # `range` is a property, which asdict leaves out.
        ranges = [list(quantizer.range) for quantizer in tensor.quantizers]
        tensors.append(
            {
                **fields,
                "quantizers": [
                    {**pair, "range": ends} for pair, ends in zip(fields["quantizers"], ranges, strict=True)
                ],
            }
        )
    return {
        "path": str(imported.path),
        "tensors": tensors,
        "keras_tensors": dict(imported.keras_tensors),
        "inside": dict(imported.inside),
        "unmatched": list(imported.unmatched),
        "ranges": {name: list(ends) for name, ends in imported.ranges.items()},
        "spec": None if imported.spec is None else imported.spec.to_dict(),
        "notes": list(imported.notes),
    }


IMPORT = Command("import", "Read where the Q/DQ pairs of any ONNX file are, for a Keras model.", _configure, _run)
