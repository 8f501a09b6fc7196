"""`qdq-workbench quantize`: quantize a float model, and calibrate it if data are given."""

from __future__ import annotations

import argparse

from qdq_workbench.cli.inputs import (
    METHODS,
    add_planning_arguments,
    load_arrays,
    load_model,
    planning_arguments,
    target_remark,
)
from qdq_workbench.cli.outcome import Command, Outcome
from qdq_workbench.cli.outputs import MODEL, check_output
from qdq_workbench.cli.remarks import inputs_text, ranges_of_inputs
from qdq_workbench.cli.widths import remarks_on_weights


def _configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", metavar="MODEL", help="a Keras 3 model, .keras or .h5")
    parser.add_argument("-o", "--output", metavar="FILE", required=True, help="the quantized model, .keras")
    add_planning_arguments(parser)
    parser.add_argument("--calibration-data", metavar="FILE", help="model inputs, .npy or .npz, with labels or without")
    parser.add_argument("--method", choices=METHODS, default="minmax", help="how ranges are made; default: minmax")


def _run(options: argparse.Namespace) -> Outcome:
    import qdq_workbench as qdq
    from qdq_workbench._files import write_atomically

    check_output(options.output, MODEL, other_than=options.model)
    model = load_model(options.model)
    data = load_arrays(options.calibration_data, "train") if options.calibration_data else None
    chosen = target_remark(options)
    q_model = qdq.quantize_model(model, **planning_arguments(options, model))
    remarks = remarks_on_weights(q_model.plan, options)
    if data is not None:
        qdq.calibrate(q_model, data, method=options.method)
    write_atomically(options.output, q_model.save)
    needs_none = not q_model.activation_quantizers
    calibrated = "calibrated" if data is not None else "not calibrated: give --calibration-data, or train it"
    calibrated = "nothing to calibrate" if needs_none else calibrated
    pairs, ranges = len(q_model.plan.tensors), ranges_of_inputs(q_model)
    return Outcome(
        f"Wrote {options.output}: {pairs} Q/DQ pairs for {options.target}{chosen}, {calibrated}{inputs_text(ranges)}",
        {
            "path": options.output,
            "qdq_pairs": pairs,
            "target": options.target,
            "calibrated": data is not None,
            "inputs": {name: list(ends) for name, ends in ranges.items()},
        },
        remarks=remarks,
    )


QUANTIZE = Command("quantize", "Make a quantized Keras model, calibrated if there are data.", _configure, _run)
