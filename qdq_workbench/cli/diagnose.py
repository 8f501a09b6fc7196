"""`qdq-workbench diagnose`: why a quantized model is worse than its float model."""

from __future__ import annotations

import argparse

from qdq_workbench.cli.inputs import add_sample_arguments, load_arrays, load_model, load_plan, load_samples
from qdq_workbench.cli.outcome import Command, Outcome
from qdq_workbench.cli.outputs import JSON, MODEL, check_keeps, check_output
from qdq_workbench.cli.remarks import scale_remarks
from qdq_workbench.errors import SpecError

_METRICS = ("accuracy", "sqnr", "mse", "kl", "cosine")


def _configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", metavar="MODEL", help="a calibrated quantized model, or a float model, .keras")
    add_sample_arguments(parser)
    parser.add_argument(
        "--calibration-data", metavar="FILE", help="for a float model, and for the fixes; default: --data"
    )
    parser.add_argument("--metric", choices=_METRICS, help="default: accuracy with labels, else sqnr, in dB")
    parser.add_argument(
        "--apply",
        action="append",
        metavar="CAUSE",
        help="apply the fix of a cause, by its number in the report or its kind, and measure the gain; repeatable; "
        "`all` keeps those that gain",
    )
    parser.add_argument("-o", "--output", metavar="FILE", help="with --apply: write the fixed model, .keras")
    parser.add_argument("--report", metavar="FILE", help="write the diagnosis, .json")


def _run(options: argparse.Namespace) -> Outcome:
    import qdq_workbench as qdq
    from qdq_workbench._files import write_atomically

    if options.output and not options.apply:
        raise SpecError("-o writes the fixed model, so say what to fix: --apply all, or --apply 1 for the first cause.")
    if options.apply and "all" in options.apply and len(options.apply) > 1:
        raise SpecError(f"all stands for every cause; give it alone. Received: --apply {', '.join(options.apply)}")
    check_output(options.output, MODEL, other_than=options.model)
    check_output(options.report, JSON)
    check_keeps((options.report,), (options.plan,))
    inputs, labels = load_samples(options.data, options.labels)
    model = load_model(options.model)
    remarks = scale_remarks(model, inputs, options.data)
    calibration_data = load_arrays(options.calibration_data, "train") if options.calibration_data else None
    found = qdq.diagnose(
        model,
        inputs if labels is None else (inputs, labels),
        plan=load_plan(options.plan) if options.plan else None,
        metric=options.metric,
        calibration_data=calibration_data,
        batch_size=options.batch_size,
        steps=options.steps,
    )
    fixed = None
    if options.apply:
        # Without causes, `apply` tries all and keeps those that gain; causes that are given stay, whatever they gain.
        wanted = [] if "all" in options.apply else [_cause(text, len(found.causes)) for text in options.apply]
        fixed = found.apply(*wanted)
    if options.output and fixed is not None:
        write_atomically(options.output, fixed.save)
    if options.report:
        found.save(options.report)
    written = [path for path in (options.output, options.report) if path]
    text = "\n".join([found.summary(), *(f"Wrote {path}" for path in written)])
    return Outcome(text, {**found.to_dict(), "written": written}, remarks=remarks)


def _cause(text: str, count: int) -> int | str:
    """Return the index of a cause from its number in the report, which starts at 1; or the text, a kind of cause.

    Raises:
        SpecError: If the report has no cause of that number.
    """
    if text.isdecimal() and not 0 < int(text) <= count:
        raise SpecError(
            f"The diagnosis has no such cause: it has {count}, numbered from 1 on. Received: --apply {text}"
        )
    return int(text) - 1 if text.isdecimal() else text


DIAGNOSE = Command("diagnose", "Find out why a quantized model is worse than its float model.", _configure, _run)
