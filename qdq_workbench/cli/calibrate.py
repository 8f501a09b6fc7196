"""`qdq-workbench calibrate`: set the ranges of a quantized model by running data through it."""

from __future__ import annotations

import argparse
from typing import Any

from qdq_workbench.cli.inputs import METHODS, load_arrays, load_model, positive, settings_from
from qdq_workbench.cli.outcome import Command, Outcome
from qdq_workbench.cli.outputs import JSON, MODEL, check_apart, check_output
from qdq_workbench.cli.remarks import inputs_text, ranges_of_inputs, scale_remarks
from qdq_workbench.errors import DataError


def _configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", metavar="Q_MODEL", help="a quantized model, .keras")
    parser.add_argument(
        "--data", metavar="FILE", required=True, help="model inputs, .npy or .npz, with labels or without"
    )
    parser.add_argument("-o", "--output", metavar="FILE", required=True, help="the calibrated model, .keras")
    parser.add_argument("--method", choices=METHODS, default="minmax", help="how ranges are made; default: minmax")
    parser.add_argument(
        "--set", action="append", default=[], metavar="NAME=VALUE", help="a setting of the method; repeatable"
    )
    parser.add_argument("--batch-size", type=positive, default=32, help="default: 32")
    parser.add_argument("--steps", type=positive, help="how many batches to read at most; default: all")
    parser.add_argument("--moving", action="store_true", help="let training go on moving the ranges")
    parser.add_argument("--ranges", metavar="FILE", help="write the range of every tensor, .json")
    parser.add_argument("--checkpoint", metavar="FILE", help="written about every second; go on from it if it exists")


def _run(options: argparse.Namespace) -> Outcome:
    import qdq_workbench as qdq
    from qdq_workbench._files import write_atomically

    check_output(options.output, MODEL)
    check_output(options.ranges, JSON)
    check_apart(options.output, options.ranges, options.checkpoint)
    settings = settings_from(options.set)
    _check_settings(settings)
    q_model, data = load_model(options.model), load_arrays(options.data, "train")
    remarks = scale_remarks(q_model, data, options.data, replaces=True)
    result = qdq.calibrate(
        q_model,
        data,
        options.method,
        steps=options.steps,
        batch_size=options.batch_size,
        # None, not True: `calibrate` freezes the ranges then, unless normalizations have not seen such data.
        freeze=False if options.moving else None,
        checkpoint=options.checkpoint,
        **settings,
    )
    write_atomically(options.output, q_model.save)
    if options.ranges:
        result.save(options.ranges)
    pairs, inputs = len(q_model.activation_quantizers), ranges_of_inputs(q_model)
    how = f"calibrated by {result.method} on {result.samples} samples"
    return Outcome(
        f"Wrote {options.output}: {pairs} activation quantizers {how}{inputs_text(inputs)}",
        {
            "path": options.output,
            "method": result.method,
            "samples": result.samples,
            "batches": result.batches,
            "inputs": {name: list(ends) for name, ends in inputs.items()},
            "ranges": {name: list(ends) for name, ends in q_model.activation_ranges().items()},
        },
        remarks=remarks,
    )


def _check_settings(settings: dict[str, Any]) -> None:
    """Raise DataError for a name that is another argument of `calibrate`, not a setting of a method."""
    import inspect

    import qdq_workbench as qdq

    named = inspect.signature(qdq.calibrate).parameters
    # These two arguments of `calibrate` have no option of their own, so --set takes them.
    wrong = sorted(set(settings) & set(named) - {"power_of_two", "histograms"})
    if wrong:
        raise DataError(
            f"--set is for the settings of the method, such as percentile=99.9; see --help for other options. "
            f"Received: {wrong[0]!r}"
        )


CALIBRATE = Command("calibrate", "Give a quantized model its ranges, by running data through it.", _configure, _run)
