"""`qdq-workbench learn-rounding`: learn the rounding of weights so that the outputs match the float model's."""

from __future__ import annotations

import argparse
from typing import Any

from qdq_workbench.cli.inputs import load_model, positive
from qdq_workbench.cli.outcome import Command, Outcome
from qdq_workbench.cli.outputs import check_apart, check_keeps
from qdq_workbench.cli.rounded import add_rounding_files, round_weights

_GRANULARITIES = ("layer", "block", "model")


def _configure(parser: argparse.ArgumentParser) -> None:
    add_rounding_files(parser, "a calibrated quantized model, .keras")
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

    check_apart(options.output, options.report, options.checkpoint)
    check_keeps((options.output,), (options.reference,))

    def work(q_model: Any, data: Any) -> Any:
        return qdq.learn_rounding(
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

    return round_weights(options, work)


LEARN_ROUNDING = Command(
    "learn-rounding", "Learn how to round the weights of a quantized model, without labels.", _configure, _run
)
