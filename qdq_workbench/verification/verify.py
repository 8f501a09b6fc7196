"""`verify_onnx`: verification of an exported file against its plan, the Keras model and ONNX Runtime."""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Iterator, Mapping
from typing import Any

import keras
import numpy as np
import onnx

from qdq_workbench._files import as_path
from qdq_workbench._interrupts import interrupts_held
from qdq_workbench.conversion.engine.quantized_model import QuantizedModel, check_quantized
from qdq_workbench.conversion.engine.random_inputs import random_inputs
from qdq_workbench.conversion.engine.retarget import in_float32, retarget
from qdq_workbench.errors import FileAccessError, UnverifiableFileError, VerificationError, first_line
from qdq_workbench.export.conversions import Conversions
from qdq_workbench.export.half.request import half_request
from qdq_workbench.export.keras_side.broadcast_additions import BROADCAST_ADDITIONS
from qdq_workbench.export.known_exports import Exports, exports_of
from qdq_workbench.export.left_out import written_tensors
from qdq_workbench.export.metadata import read_metadata
from qdq_workbench.export.onnx_export import build_proto
from qdq_workbench.foreign.lint_axes import channel_axes
from qdq_workbench.graph.half_precision import FLOAT32, HALF_TYPES, HalfRequest
from qdq_workbench.onnx_graph.graph import standard_opset
from qdq_workbench.onnx_graph.model_files import read_model
from qdq_workbench.onnx_graph.qdq_graph import QDQGraph
from qdq_workbench.onnx_graph.sessions import (
    RunError,
    fed_inputs,
    make_session,
    needs_disabled_rewriting,
    session_source,
)
from qdq_workbench.placement.plan import PlacementPlan
from qdq_workbench.placement.targets import Target, get_target
from qdq_workbench.verification.alone import OptimizationParity, random_samples
from qdq_workbench.verification.differences import OutputParity, saturation_of
from qdq_workbench.verification.file_integers import check_integers
from qdq_workbench.verification.file_readers import check_readers, mixed_pairs
from qdq_workbench.verification.file_scale import warn_of_file_scale
from qdq_workbench.verification.forms import check_form, form_differences, with_shapes
from qdq_workbench.verification.half_parity import HalfParity, HalfRun, run_of_half
from qdq_workbench.verification.integer_kernels import count_integer_kernels
from qdq_workbench.verification.lowered import lowering_differences
from qdq_workbench.verification.mixed_reads import check_mixed_reads
from qdq_workbench.verification.parity import Parity
from qdq_workbench.verification.report import Check, VerificationReport, check_of, first_few
from qdq_workbench.verification.rounded_form import float_type_of, half_ends, rounded_form, type_differences
from qdq_workbench.verification.samples import divisible_samples, read_samples, samples_of_file
from qdq_workbench.verification.saturation import agreement_text, exact_sums_note
from qdq_workbench.verification.structure import (
    compare_structure,
    differences_from_note,
    different_ends,
    read_structure,
)

_RANDOM_SAMPLES = 8
_TYPED_QUANTIZE = 21  # the first opset in which QuantizeLinear has the attribute output_dtype


@interrupts_held()
def verify_onnx(
    path: str | pathlib.Path, q_model: QuantizedModel | None = None, data: Any = None
) -> VerificationReport:
    """Verify an exported file against its plan, against the Keras model, and in ONNX Runtime.

    The checks: `onnx.checker` accepts the file; its Q/DQ pairs, scales, zero points, axes and integers are exactly
    those of the model (without a model, those in the file's metadata), by a new export and, independently of the
    exporter, by the model's ranges and weights; every layer has the operators of the plan's lowering, and reads the
    pairs that the plan puts on its inputs; ONNX Runtime computes every quantized tensor as Keras does, within one
    step, each part fed the file's own values, and fed other integers where a layer reads a tensor with its pair and
    without; and the outputs agree from end to end, within a tolerance measured by the network's own sensitivity.
    Without a model, ONNX Runtime's optimized run is compared in the same way with its unoptimized run of the file. The
    integer kernels are counted. A file in half precision is compared with its float32 form, within the error that
    rounding to its type explains, and with a model, that form with Keras.

    Args:
        path: The file, written by `export_onnx`.
        q_model: The model that it was exported from; it is only read. A model quantized for another target is planned
            again for the file's target.
        data: Samples to compare on (at most 256 are used), in any form that `calibrate` takes; None for random
            samples within the calibrated range of the inputs.

    Returns:
        The checks and their figures.

    Raises:
        FileAccessError: If the file cannot be read.
        UnverifiableFileError: If the file is not an ONNX model, or if `export_onnx` did not write it and no model is
            given.
        NotQuantizedError: If the model was not made by `quantize_model`.
        UncalibratedError: If the file quantizes a tensor for which the model has no range.
        DataError: If the data do not fit the model.

    Warns:
        DataScaleWarning: If the data are many times larger or smaller than the calibrated ranges of the inputs.

    Example:
        >>> import keras, pathlib, tempfile
        >>> from qdq_workbench import calibrate, export_onnx, quantize_model
        >>> image = keras.Input((2,), name="image")
        >>> q_model = quantize_model(keras.Model(image, keras.layers.Dense(1, name="head")(image)))
        >>> _ = calibrate(q_model, np.ones((1, 2)), verbose=False)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     report = export_onnx(q_model, pathlib.Path(folder) / "model.onnx")
        ...     verify_onnx(report.path, q_model).passed
        True
    """
    path = as_path(path, FileAccessError)
    proto = read_model(
        path,
        refusal=UnverifiableFileError,
        advice="Export it again",
        in_place_of_litert="verify_onnx reads ONNX files. files.verify_tflite(path, q_model) checks it (qdq-workbench "
        "verify FILE.tflite --model Q_MODEL)",
    )
    return verify_model(path, proto, q_model, data)


@interrupts_held()
def verify_model(
    path: pathlib.Path, proto: onnx.ModelProto, q_model: QuantizedModel | None, data: Any
) -> VerificationReport:
    """Return what `verify_onnx` returns, of a model that was read from the path."""
    noted = read_metadata(proto)
    if noted is None and q_model is None:
        raise UnverifiableFileError(
            "The file carries no plan, so it was not written by export_onnx; pass the model that it was exported "
            f"from to verify it. Received: path={str(path)!r}, q_model=None"
        )
    # A file that the unchanged model has just been exported to equals a new export, so none is made.
    exports = Exports() if q_model is None else exports_of(check_quantized(q_model))
    known = q_model is not None and exports.hold(proto)
    kind = HALF_TYPES.get(float_type_of(proto) if noted is None else noted.get("float_type", FLOAT32))
    half, given = None, q_model
    if q_model is not None:
        q_model = _planned_for(q_model, noted)
        half = None if kind is None else half_request(q_model, kind.name, ends=bool(half_ends(proto)))
        q_model = in_float32(q_model)
    # A file in half precision is built for its structure, and in float32 for its numbers.
    conversions = None if half is None else exports.conversions
    structure = _same_structure("the model") if known else _check_structure(proto, q_model, noted, half, conversions)
    if structure.passed:
        structure = dataclasses.replace(structure, detail=structure.detail + _planned_anew(given, q_model))
    checks = [_check_format(proto), structure]
    if q_model is not None and half is None and structure.passed:
        checks.append(check_integers(proto, q_model))
    plan = q_model.plan if q_model is not None else _noted_plan(noted)
    checks += [_check_operators(plan, proto), check_readers(plan, proto)]
    figures: dict[str, Any] = {"pairs": len(written_tensors(proto))}
    if checks[0].passed:
        typed = with_shapes(proto)
        checks.append(check_form(plan, typed))
        figures["other_forms"] = list(form_differences(plan, typed))
    if all(check.passed for check in checks):
        try:
            half_run = None if kind is None else run_of_half(proto, kind)
            # `run_of_half` has opened a file in half precision already.
            if half_run is None:
                make_session(proto, optimized=True)
        except VerificationError as error:
            checks.append(Check("opens in ONNX Runtime", passed=False, detail=str(error)))
        else:
            with BROADCAST_ADDITIONS:
                checks.extend(_check_runs(proto, q_model, data, figures, half_run, conversions))
            why_not = "" if half_run is None else half_run.why_not
            checks.append(_not_opened(why_not) if why_not else _count_kernels(proto, figures))
    return VerificationReport(path, tuple(checks), figures, None if noted is None else plan.target)


def _count_kernels(proto: onnx.ModelProto, figures: dict[str, Any]) -> Check:
    kernels = count_integer_kernels(proto)
    figures["integer_kernels"] = {op: list(counts) for op, counts in kernels.counts.items()}
    figures["float_nodes"] = list(kernels.float_nodes)
    shown = kernels.summary()
    with session_source(proto) as model:
        helped = standard_opset(proto) >= _TYPED_QUANTIZE and needs_disabled_rewriting(model)
    if helped:
        shown += (
            "; ONNX Runtime opens this file only with disabled_optimizers=['QDQS8ToU8Transformer'], because it does "
            f"not finish its own rewriting of int8 pairs from opset {_TYPED_QUANTIZE} on. Exported at opset 17 it "
            "opens as it is"
        )
    return Check("integer kernels in ONNX Runtime", passed=True, detail=shown or "no compute nodes")


def _not_opened(why: str) -> Check:
    """Return a passed check whose detail is the reason why the file itself was not run."""
    detail = f"not run as it is: {why}; evaluated in float32, with every result rounded to its type"
    return Check("runs in ONNX Runtime", passed=True, detail=detail)


def _planned_for(q_model: QuantizedModel, noted: Mapping[str, Any] | None) -> QuantizedModel:
    """Return the model, planned again if the file was exported for another target."""
    if noted is None:
        return q_model
    plan = noted["plan"]
    target = Target.from_dict(plan["altered_target"]) if "altered_target" in plan else get_target(plan["target"])
    # Whole targets, not their names: an altered target has the name of the registered one.
    return q_model if target == q_model.plan.target_object else retarget(q_model, target)


def _planned_anew(given: QuantizedModel | None, planned: QuantizedModel | None) -> str:
    """Return a remark if the given model had to be planned again for the file's target; else empty."""
    if given is None or planned is None or given.plan.target_object == planned.plan.target_object:
        return ""
    here, there = given.plan.target_label, planned.plan.target_label
    return f" (the model is planned for {here}; it was planned anew for the file's target, {there})"


def _check_format(proto: onnx.ModelProto) -> Check:
    try:
        with session_source(proto) as model:
            onnx.checker.check_model(model, full_check=True)
    except Exception as error:  # noqa: BLE001 - the checker raises several unrelated classes
        return Check("onnx.checker", passed=False, detail=first_line(error))
    return Check("onnx.checker", passed=True, detail=f"opset {standard_opset(proto)}")


def _check_structure(
    proto: onnx.ModelProto,
    q_model: QuantizedModel | None,
    noted: Mapping[str, Any] | None,
    half: HalfRequest | None,
    conversions: Conversions | None,
) -> Check:
    """Compare the file's quantizers exactly with a new export of the model, or without a model with the metadata."""
    found = read_structure(proto)
    if q_model is not None:
        source, expected = "the model", _built_again(proto, q_model, half, conversions)
        problems = [*different_ends(expected, proto), *compare_structure(read_structure(expected), found)]
        problems += [] if half is None else type_differences(expected, proto)
    else:
        source, problems = "the exporter's note", differences_from_note(proto, noted or {}, found)
    return check_of("structure", problems, _same_structure(source).detail)


def _same_structure(source: str) -> Check:
    return Check("structure", passed=True, detail=f"pairs, scales, zero points, axes and integers equal {source}'s")


def _noted_plan(noted: Mapping[str, Any] | None) -> PlacementPlan:
    return PlacementPlan.from_dict((noted or {})["plan"])


def _check_operators(plan: PlacementPlan, proto: onnx.ModelProto) -> Check:
    """Compare the operators of every layer with the plan's lowering, independently of the exporter."""
    problems = lowering_differences(plan, proto.graph.node)
    if problems:
        return Check("operators", passed=False, detail=first_few(problems))
    graph, steps = plan.graph, plan.onnx_lowering.nodes
    layers = {node.layer for node in graph.nodes if not node.is_model_input}
    known = sum(all(steps[call.name].operators is not None for call in graph.calls(layer)) for layer in layers)
    detail = f"those that the plan says, of {known} of {len(layers)} layers"
    rest = "; of the others it names no operators" if known < len(layers) else ""
    return Check("operators", passed=True, detail=f"{detail}{rest}")


def _built_again(
    proto: onnx.ModelProto, q_model: QuantizedModel, half: HalfRequest | None, conversions: Conversions | None
) -> onnx.ModelProto:
    """Return a new export of the model, with the opset and the batch size of the file."""
    # An input with a fixed first axis has it in all files of the model.
    ends = zip(fed_inputs(proto).values(), q_model.inputs, strict=False)
    dynamic = not any(shape and shape[0] is not None and tensor.shape[0] is None for (shape, _), tensor in ends)
    options: dict[str, Any] = {"opset": standard_opset(proto), "dynamic_batch": dynamic, "conversions": conversions}
    return build_proto(q_model, q_model.plan.target_object, half=half, **options)[0]


def _check_numbers(
    proto: onnx.ModelProto,
    q_model: QuantizedModel | None,
    data: Any,
    figures: dict[str, Any],
    half_run: HalfRun | None,
    conversions: Conversions | None,
) -> Iterator[Check]:
    """Compare a file with Keras; one in half precision with a float32 export of the model, and that with Keras."""
    if q_model is None:
        yield from _check_alone(proto, data, figures, half_run)
        return
    inputs = _samples(q_model, data)
    if data is not None:
        warn_of_file_scale(proto, q_model, inputs)
    if half_run is not None:
        twin = _built_again(proto, q_model, None, conversions)
        yield from HalfParity(proto, twin, half_run, inputs).checks()
        proto = twin
    inputs = divisible_samples(proto, q_model, inputs)
    parity = Parity(proto, q_model, inputs)
    yield from _check_tensors(parity, figures)
    mixed = mixed_pairs(q_model.plan, proto)
    if mixed:
        yield check_mixed_reads(proto, q_model, inputs, mixed)
    outputs = [*parity.end_to_end(optimized=False), *parity.end_to_end(optimized=True)]
    figures["outputs"] = [dataclasses.asdict(output) for output in outputs]
    figures["saturation"] = saturation_of(outputs)
    figures["agreement"] = min((o.agreement for o in outputs if o.agreement is not None), default=None)
    for output in outputs:
        yield _check_output(output)


def _check_runs(
    proto: onnx.ModelProto,
    q_model: QuantizedModel | None,
    data: Any,
    figures: dict[str, Any],
    half_run: HalfRun | None,
    conversions: Conversions | None,
) -> Iterator[Check]:
    """Compare the numbers; a file that the runtime opens but cannot run fails, with the known causes in the detail."""
    try:
        yield from _check_numbers(proto, q_model, data, figures, half_run, conversions)
    except RunError as error:
        causes = [f"{finding.node!r}: {finding.message}" for finding in channel_axes(QDQGraph(proto))]
        advice = (
            f"; integer kernels take one scale per output channel or one in all, so quantize with per_axis=False or "
            f"leave the axis out: {'; '.join(causes)}"
        )
        yield Check("runs in ONNX Runtime", passed=False, detail=f"{error}{advice if causes else ''}")


def _check_tensors(parity: Parity, figures: dict[str, Any]) -> Iterator[Check]:
    tensors = parity.tensors()
    worst = max(tensors, key=lambda tensor: tensor.worst, default=None)
    elements = sum(tensor.elements for tensor in tensors)
    off = sum(tensor.off_by_one for tensor in tensors)
    coarse = max(tensors, key=lambda tensor: tensor.by_bias, default=None)
    by_bias = coarse.by_bias if coarse else 0
    figures["lsb"] = {"elements": elements, "off_by_one": off, "worst": worst.worst if worst else 0, "by_bias": by_bias}
    if worst is not None:
        detail = f"{off} of {elements} integers differ by one step, none by more"
        if coarse and by_bias:
            detail += (
                f" but behind int32 biases whose steps are coarser than the pair's: {coarse.tensor!r} by up to "
                f"{by_bias}"
            )
        if worst.worst > 1:
            detail = f"tensor {worst.tensor!r} differs by up to {worst.worst} steps"
        yield Check("tensor by tensor", passed=worst.worst <= 1, detail=detail)
    forced = parity.forced_outputs()
    bad = [name for name, difference in forced.items() if difference > 1.0]
    detail = f"output {bad[0]!r} differs although its inputs are equal" if bad else "equal when their inputs are equal"
    yield Check("outputs", passed=not bad, detail=detail)


def _check_output(output: OutputParity) -> Check:
    how = "with integer kernels" if output.optimized else "without optimizations"
    agreement = agreement_text(output.agreement)
    reasons = [output.rewrite] if output.rewrite else []
    reasons += [exact_sums_note(vars(output.saturated))] if output.saturated else []
    note = f" ({'; '.join(reasons)})" if reasons else ""
    detail = f"mean difference {output.mean_difference:.3g}, allowed {output.allowed:.3g}{agreement}{note}"
    return Check(f"output {output.output!r} {how}", passed=output.passed, detail=detail)


def _check_alone(
    proto: onnx.ModelProto, data: Any, figures: dict[str, Any], half_run: HalfRun | None
) -> Iterator[Check]:
    """Compare the file's optimized run with its unoptimized run, for a verification without a model."""
    inputs = random_samples(proto) if data is None else samples_of_file(proto, data)
    if inputs is None:
        detail = "not run, because sizes besides the batch are open; pass data to compare its runs in ONNX Runtime"
        yield Check("runs in ONNX Runtime", passed=True, detail=detail)
        return
    if data is not None:
        warn_of_file_scale(proto, None, inputs)
    if half_run is None:
        alone = OptimizationParity(proto, inputs)
        yield from alone.checks()
        figures["saturation"] = alone.saturation
    else:
        yield from HalfParity(proto, rounded_form(proto), half_run, inputs).checks()


def _samples(q_model: QuantizedModel, data: Any) -> dict[str, np.ndarray]:
    """Return up to 256 samples per input name."""
    if data is None:
        arrays = keras.tree.flatten(random_inputs(q_model, _RANDOM_SAMPLES))
        return dict(zip(_input_names(q_model), arrays, strict=True))
    arrays = read_samples(q_model, data)
    dtypes = [tensor.dtype for tensor in q_model.inputs]
    return {name: array.astype(dtype) for name, array, dtype in zip(_input_names(q_model), arrays, dtypes, strict=True)}


def _input_names(q_model: QuantizedModel) -> list[str]:
    return list(q_model.plan.graph.inputs)
