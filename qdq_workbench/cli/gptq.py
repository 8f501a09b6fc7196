"""`qdq-workbench gptq`: round the weight matrices of a quantized model by GPTQ, without training."""

from __future__ import annotations

import argparse

from qdq_workbench.cli.inputs import positive
from qdq_workbench.cli.outcome import Command, Outcome
from qdq_workbench.cli.rounded import add_rounding_files, round_weights


def _configure(parser: argparse.ArgumentParser) -> None:
    add_rounding_files(parser, "a quantized model, .keras; calibrated if it has pairs")
    parser.add_argument("--damping", type=float, default=0.01, help="share of the mean square of inputs; default: 0.01")
    parser.add_argument("--activation-order", action="store_true", help="round what meets the largest inputs first")
    parser.add_argument(
        "--batch-size", type=positive, default=32, help="samples that are computed at once; default: 32"
    )
    parser.add_argument("--seed", type=int, default=0, help="of the order of the samples; default: 0")
    parser.add_argument("--report", metavar="FILE", help="write the errors before and after, .json")


def _run(options: argparse.Namespace) -> Outcome:
    import qdq_workbench as qdq

    settings = {
        "damping": options.damping,
        "activation_order": options.activation_order,
        "batch_size": options.batch_size,
        "seed": options.seed,
    }
    return round_weights(options, lambda q_model, data: qdq.correction.gptq_weights(q_model, data, **settings))


GPTQ = Command("gptq", "Round the matrices of a quantized model by GPTQ, without labels or training.", _configure, _run)
