"""`qdq-workbench search`: the best placement under budgets of accuracy, size and measured time."""

from __future__ import annotations

import argparse
from typing import Any

from qdq_workbench.cli.inputs import (
    add_planning_arguments,
    load_arrays,
    load_cases,
    load_model,
    load_samples,
    planning_arguments,
    positive,
)
from qdq_workbench.cli.outcome import Command, Outcome
from qdq_workbench.cli.outputs import JSON, MODEL, PAGE, SPEC, check_apart, check_keeps, check_output, write_figure
from qdq_workbench.cli.remarks import scale_remarks
from qdq_workbench.cli.written_spec import write_spec
from qdq_workbench.errors import DataError, SpecError

_METRICS = ("accuracy", "sqnr", "cosine")
#: The options that determine a plan together with `--spec`, which a quantized model takes too.
_OF_A_PLAN = ("case", "mode", "target", "weight_bits", "activation_bits", "weights_alone", "block_size")


def _configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", metavar="MODEL", help="a model, or a calibrated quantized model, .keras")
    parser.add_argument(
        "--data",
        metavar="FILE",
        required=True,
        help="model inputs with labels: .npz with x and y (or x_test and y_test)",
    )
    parser.add_argument("--labels", metavar="FILE", help="labels, .npy, for inputs without")
    parser.add_argument(
        "--accuracy-floor",
        type=float,
        metavar="NUMBER",
        help="what the metric has to reach, such as 0.9",
    )
    parser.add_argument(
        "--max-loss",
        type=float,
        metavar="NUMBER",
        help="most by which the metric may be below that of the float model on the same samples, such as 0.01",
    )
    parser.add_argument("--max-bytes", type=positive, metavar="BYTES", help="most bytes of all weights")
    parser.add_argument("--max-ms", type=float, metavar="MS", help="most milliseconds per run in ONNX Runtime")
    parser.add_argument(
        "--objective",
        choices=("bytes", "ms", "macs", "accuracy"),
        default="bytes",
        help="what is made best: bytes of weights (default), measured time, operations in float, or accuracy",
    )
    parser.add_argument("--threads", type=positive, help="threads of ONNX Runtime for times; default: its own choice")
    parser.add_argument("--metric", choices=_METRICS, default="accuracy", help="default: accuracy; sqnr is in dB")
    parser.add_argument(
        "--bits",
        type=int,
        action="append",
        help="bits that layers with fewer are raised to before they stay in float; repeatable; default: 8",
    )
    parser.add_argument(
        "--try-case",
        action="append",
        default=[],
        metavar="CASE",
        help="a library case that is tried in place of the plan's own cases and defaults, or auto for all that change "
        "the plan; repeatable",
    )
    parser.add_argument(
        "--pairs",
        action="store_true",
        help="also decide about the pairs of layers that merge, pool or activate: both operands, one, none, the output",
    )
    parser.add_argument(
        "--share",
        choices=("patterns",),
        help="patterns: one decision about all layers that are the same place of repeated blocks",
    )
    add_planning_arguments(parser, "tensorrt; with --objective ms or --max-ms onnxruntime, where times are measured")
    parser.add_argument("--calibration-data", metavar="FILE", help="for a float model; default: --data")
    parser.add_argument(
        "--confirmation-data",
        metavar="FILE",
        help="other samples with labels, .npz, to confirm the placement on; default: half of --data is held out",
    )
    parser.add_argument("--batch-size", type=positive, default=32, help="default: 32")
    parser.add_argument("--steps", type=positive, help="how many batches to read at most; default: all")
    parser.add_argument("--jobs", type=int, help="worker processes that measure accuracies; default: 1")
    parser.add_argument(
        "--checkpoint", metavar="FILE", help="written after every placement; go on from it if it exists"
    )
    parser.add_argument("-o", "--output", metavar="FILE", help="write the quantized model that was found, .keras")
    parser.add_argument("--spec-output", metavar="FILE", help="write the spec that leads to it, .yaml or .json")
    parser.add_argument("--report", metavar="FILE", help="write everything that was tried, .json")
    parser.add_argument("--figure", metavar="FILE", help="write accuracy against cost, with the Pareto front, .html")


def _run(options: argparse.Namespace) -> Outcome:
    import qdq_workbench as qdq
    from qdq_workbench._files import write_atomically
    from qdq_workbench.analysis.search_starts import spec_alone

    check_output(options.output, MODEL, other_than=options.model)
    for path, suffixes in ((options.spec_output, SPEC), (options.report, JSON), (options.figure, PAGE)):
        check_output(path, suffixes)
    check_apart(options.output, options.spec_output, options.report, options.figure, options.checkpoint)
    check_keeps((options.report, options.figure, options.checkpoint), (options.spec,))
    model = load_model(options.model)
    inputs, labels = load_samples(options.data, options.labels)
    if labels is None and options.metric == "accuracy":
        raise DataError(
            "Accuracy needs labels: save a .npz file with x and y, give --labels, or another --metric. "
            f"Received: data without labels in {options.data!r}"
        )
    remarks = scale_remarks(model, inputs, options.data)
    plan, spec = _plan_and_spec(model, options)
    result = qdq.search(
        model,
        inputs if labels is None else (inputs, labels),
        accuracy_floor=options.accuracy_floor,
        max_loss=options.max_loss,
        max_bytes=options.max_bytes,
        max_ms=options.max_ms,
        objective=options.objective,
        threads=options.threads,
        confirmation_data=_pairs(options.confirmation_data) if options.confirmation_data else None,
        plan=plan,
        spec=spec,
        metric=options.metric,
        # Not as the option's default, to which the action append would add the user's widths.
        bits=options.bits or (8,),
        cases=_cases(options.try_case),
        pairs=options.pairs,
        share=options.share,
        calibration_data=load_arrays(options.calibration_data, "train") if options.calibration_data else None,
        batch_size=options.batch_size,
        steps=options.steps,
        n_jobs=options.jobs,
        checkpoint=options.checkpoint,
    )
    use = ""
    if options.output:
        write_atomically(options.output, result.q_model.save)
    if options.spec_output:
        use = write_spec(options.spec_output, spec_alone(result.spec, result.plan, model), result.plan)
    if options.report:
        result.save(options.report)
    if options.figure:
        write_figure(options.figure, result.plot())
    paths = (options.output, options.spec_output, options.report, options.figure)
    written = [path for path in paths if path]
    text = "\n".join([result.summary(), *(f"Wrote {path}" for path in written), *([use] if use else [])])
    return Outcome(
        text,
        {
            **result.to_dict(),
            "float_layers": result.float_layers,
            "written": written,
            **({"use_spec": use} if use else {}),
        },
        passed=result.met is True,  # None, not confirmed, is no pass
        remarks=remarks,
    )


def _cases(names: list[str]) -> Any:
    """Return the argument `cases` of `search`."""
    if "auto" in names and len(names) > 1:
        raise SpecError(f"auto stands for all library cases; give it alone. Received: --try-case {', '.join(names)}")
    return "auto" if names == ["auto"] else load_cases(names) or None


def _pairs(path: str) -> Any:
    inputs, labels = load_samples(path, None)
    return inputs if labels is None else (inputs, labels)


def _plan_and_spec(model: Any, options: argparse.Namespace) -> tuple[Any, Any]:
    """Return the plan of a float model, None for a quantized one, which has its own; and the spec or None."""
    import qdq_workbench as qdq

    if not isinstance(model, qdq.QuantizedModel):
        timed = options.objective == "ms" or options.max_ms is not None
        # Times are measured in ONNX Runtime, which fuses a placement for TensorRT only in part.
        options.target = options.target or ("onnxruntime" if timed else "tensorrt")
        arguments = planning_arguments(options, model)
        return qdq.plan_placement(model, **arguments), arguments["quantization_spec"]
    # Compared with None and [], because --block-size 0 is an option given.
    given = [f"--{name.replace('_', '-')}" for name in _OF_A_PLAN if getattr(options, name) not in (None, [])]
    if given:
        raise SpecError(
            f"The model is quantized already and has its plan; {', '.join(given)} would need another one. Give its "
            "float model. "
            f"Received: model={options.model!r}"
        )
    return None, qdq.QuantizationSpec.load(options.spec) if options.spec else None


SEARCH = Command("search", "Find the best placement under budgets of accuracy, size and time.", _configure, _run)
