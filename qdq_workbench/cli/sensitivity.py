"""`qdq-workbench sensitivity`: rank the layers by the error that their quantization causes."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

from qdq_workbench.cli.inputs import add_sample_arguments, load_arrays, load_model, load_plan, load_samples
from qdq_workbench.cli.outcome import Command, Outcome
from qdq_workbench.cli.outputs import JSON, PAGE, SPEC, check_apart, check_keeps, check_output, write_figure
from qdq_workbench.cli.remarks import scale_remarks
from qdq_workbench.cli.written_spec import write_spec
from qdq_workbench.errors import SpecError

_METRICS = ("sqnr", "mse", "kl", "cosine", "accuracy")


def _configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", metavar="MODEL", help="a model, or a calibrated quantized model, .keras")
    add_sample_arguments(parser)
    parser.add_argument("--calibration-data", metavar="FILE", help="for a float model; default: --data")
    parser.add_argument(
        "--mode", choices=("one_on", "one_off"), default="one_on", help="quantize one layer, or all but one"
    )
    parser.add_argument("--metric", choices=_METRICS, default="sqnr", help="default: sqnr, in dB")
    parser.add_argument(
        "--site", action="append", choices=("input", "weight", "output"), help="what to quantize; repeatable"
    )
    parser.add_argument("--jobs", type=int, help="worker processes; default: 1")
    parser.add_argument("--checkpoint", metavar="FILE", help="written after every layer; go on from it if it exists")
    parser.add_argument("-o", "--output", metavar="FILE", help="write the report, .json")
    parser.add_argument("--figure", metavar="FILE", help="write the ranking as a page, .html")
    parser.add_argument("--top-k", type=int, metavar="K", help="with --spec-output: how many layers to keep in float")
    parser.add_argument("--spec-output", metavar="FILE", help="write the spec that keeps them in float, .yaml or .json")


def _run(options: argparse.Namespace) -> Outcome:
    import qdq_workbench as qdq
    from qdq_workbench.analysis.search_starts import spec_alone

    if (options.top_k is None) != (options.spec_output is None):
        raise SpecError("Give --top-k and --spec-output together: how many layers, and where to write the spec.")
    for path, suffixes in ((options.output, JSON), (options.figure, PAGE), (options.spec_output, SPEC)):
        check_output(path, suffixes)
    outputs = (options.output, options.figure, options.spec_output, options.checkpoint)
    check_apart(*outputs)
    check_keeps(outputs, (options.plan,))
    inputs, labels = load_samples(options.data, options.labels)
    model = load_model(options.model)
    plan: Any = load_plan(options.plan) if options.plan else None
    # Not as the option's default, to which the action append would add the user's sites.
    sites = options.site or ("input", "weight", "output")
    if options.top_k is not None:
        plan = _checked_plan(options.top_k, model, plan, sites)
    remarks = scale_remarks(model, inputs, options.data)
    report = qdq.sensitivity(
        model,
        inputs if labels is None else (inputs, labels),
        plan=plan,
        mode=options.mode,
        metric=options.metric,
        sites=sites,
        calibration_data=load_arrays(options.calibration_data, "train") if options.calibration_data else None,
        batch_size=options.batch_size,
        steps=options.steps,
        n_jobs=options.jobs,
        checkpoint=options.checkpoint,
    )
    use = ""
    if options.output:
        report.save(options.output)
    if options.figure:
        write_figure(options.figure, report.plot())
    if options.spec_output:
        spec = report.apply(top_k=options.top_k, spec=spec_alone(None, plan, model))
        use = write_spec(options.spec_output, spec, plan)
    written = [path for path in (options.output, options.figure, options.spec_output) if path]
    text = "\n".join([report.summary(), *(f"Wrote {path}" for path in written), *([use] if use else [])])
    ranking = [entry.layer for entry in report.ranked()]
    more = {"use_spec": use} if use else {}
    return Outcome(text, {**report.to_dict(), "ranking": ranking, "written": written, **more}, remarks=remarks)


def _checked_plan(top_k: int, model: Any, plan: Any, sites: Sequence[str]) -> Any:
    """Return the plan of the sweep; raise `SpecError` before it if there are not so many layers."""
    import qdq_workbench as qdq
    from qdq_workbench.analysis.sensitivity import chosen_layers

    if plan is None:
        plan = model.plan if isinstance(model, qdq.QuantizedModel) else qdq.plan_placement(model)
    count = len(chosen_layers(plan, sites))
    if not 0 <= top_k <= count:
        raise SpecError(f"--top-k must be from 0 to {count}, the number of measured layers. Received: --top-k {top_k}")
    return plan


SENSITIVITY = Command("sensitivity", "Rank the layers by what their quantization costs.", _configure, _run)
