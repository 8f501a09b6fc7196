"""`qdq-workbench learn-rounding`: round the weights of a quantized model so that its outputs are the float model's."""

from __future__ import annotations

import argparse

from qdq_workbench.cli.inputs import load_arrays, load_model, positive
from qdq_workbench.cli.outcome import Command, Outcome
from qdq_workbench.cli.outputs import JSON, MODEL, check_output
from qdq_workbench.cli.remarks import scale_remarks

_GRANULARITIES = ("layer", "block", "model")


def _configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", metavar="Q_MODEL", help="a calibrated quantized model, .keras")
    parser.add_argument(
        "--data", metavar="FILE", required=True, help="model inputs, .npy or .npz; labels are not needed"
    )
    parser.add_argument("-o", "--output", metavar="FILE", required=True, help="the model with new weights, .keras")
    parser.add_argument(
        "--granularity", choices=_GRANULARITIES, default="block", help="what is learned together; default: block"
    )
    parser.add_argument("--steps", type=positive, default=1000, help="steps per layer or block; default: 1000")
    parser.add_argument("--batch-size", type=positive, default=32, help="samples per step; default: 32")
    parser.add_argument(
        "--reference", metavar="FILE", help="the float model to be matched, where weights were clipped before"
    )
    parser.add_argument("--keep-biases", action="store_true", help="learn the rounding alone, not the biases")
    parser.add_argument("--drop", type=float, help="the share of activations that stays float meanwhile")
    parser.add_argument("--seed", type=int, default=0, help="of the order of the samples; default: 0")
    parser.add_argument("--checkpoint", metavar="FILE", help="written after every unit; go on from it if it exists")
    parser.add_argument("--report", metavar="FILE", help="write the errors before and after, .json")


def _run(options: argparse.Namespace) -> Outcome:
    import qdq_workbench as qdq
    from qdq_workbench._files import write_atomically

    check_output(options.output, MODEL)
    check_output(options.report, JSON)
    q_model, data = load_model(options.model), load_arrays(options.data, "train")
    remarks = scale_remarks(q_model, data, options.data)
    report = qdq.learn_rounding(
        q_model,
        data,
        granularity=options.granularity,
        steps=options.steps,
        batch_size=options.batch_size,
        reference=load_model(options.reference) if options.reference else None,
        biases=not options.keep_biases,
        drop=options.drop,
        seed=options.seed,
        checkpoint=options.checkpoint,
    )
    write_atomically(options.output, q_model.save)
    if options.report:
        report.save(options.report)
    written = [path for path in (options.output, options.report) if path]
    text = "\n".join([report.summary(), *(f"Wrote {path}" for path in written)])
    return Outcome(text, {**report.to_dict(), "path": options.output, "written": written}, remarks=remarks)


LEARN_ROUNDING = Command(
    "learn-rounding", "Learn how to round the weights of a quantized model, without labels.", _configure, _run
)
