"""`qdq-workbench gptq`: round the matrices of a quantized model by GPTQ, without training."""

from __future__ import annotations

import argparse

from qdq_workbench.cli.inputs import load_arrays, load_model, positive
from qdq_workbench.cli.outcome import Command, Outcome
from qdq_workbench.cli.outputs import JSON, MODEL, check_output


def _configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", metavar="Q_MODEL", help="a quantized model, .keras; calibrated if it has pairs")
    parser.add_argument(
        "--data", metavar="FILE", required=True, help="model inputs, .npy or .npz; labels are not needed"
    )
    parser.add_argument("-o", "--output", metavar="FILE", required=True, help="the model with new weights, .keras")
    parser.add_argument("--damping", type=float, default=0.01, help="share of the mean square of inputs; default: 0.01")
    parser.add_argument("--activation-order", action="store_true", help="round what meets the largest inputs first")
    parser.add_argument(
        "--batch-size", type=positive, default=32, help="samples that are computed at once; default: 32"
    )
    parser.add_argument("--seed", type=int, default=0, help="of the order of the samples; default: 0")
    parser.add_argument("--report", metavar="FILE", help="write the errors before and after, .json")


def _run(options: argparse.Namespace) -> Outcome:
    import qdq_workbench as qdq
    from qdq_workbench._files import write_atomically

    check_output(options.output, MODEL)
    check_output(options.report, JSON)
    q_model, data = load_model(options.model), load_arrays(options.data, "train")
    report = qdq.correction.gptq_weights(
        q_model,
        data,
        damping=options.damping,
        activation_order=options.activation_order,
        batch_size=options.batch_size,
        seed=options.seed,
    )
    write_atomically(options.output, q_model.save)
    if options.report:
        report.save(options.report)
    written = [path for path in (options.output, options.report) if path]
    text = "\n".join([report.summary(), *(f"Wrote {path}" for path in written)])
    return Outcome(text, {**report.to_dict(), "path": options.output, "written": written})


GPTQ = Command("gptq", "Round the matrices of a quantized model by GPTQ, without labels or training.", _configure, _run)
