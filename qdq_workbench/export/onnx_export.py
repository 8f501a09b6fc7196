"""`export_onnx`: from a quantized model to a clean QDQ ONNX file."""

from __future__ import annotations

import pathlib
import time
from typing import Any

import keras
import onnx

from qdq_workbench._collector import collector_paused
from qdq_workbench._files import check_name
from qdq_workbench._interrupts import interrupts_held, safe_point
from qdq_workbench._warned_line import warn_caller
from qdq_workbench.conversion.engine.cut import Cut, cut_model
from qdq_workbench.conversion.engine.folding import FoldingRebuilder
from qdq_workbench.conversion.engine.quantized_model import QuantizedModel, check_quantized
from qdq_workbench.conversion.engine.rebuild import unique_names
from qdq_workbench.conversion.engine.retarget import in_float32
from qdq_workbench.errors import OutputPathError
from qdq_workbench.export.build_onnx import build_onnx
from qdq_workbench.export.conversions import Conversions
from qdq_workbench.export.encode import encode_activations, encode_weights
from qdq_workbench.export.half.request import half_notes, half_request
from qdq_workbench.export.keras_side.cut_model import CutModel
from qdq_workbench.export.keras_side.large_variables import large_variables
from qdq_workbench.export.known_exports import remember_export
from qdq_workbench.export.left_out import left_out_note, written_tensors
from qdq_workbench.export.metadata import write_metadata
from qdq_workbench.export.notes import notes_on_float_means, notes_on_float_weights
from qdq_workbench.export.other_targets import planned_for
from qdq_workbench.export.report import ExportReport
from qdq_workbench.graph.half_precision import FLOAT32, HalfRequest
from qdq_workbench.graph_builder import bind_graph, output_names
from qdq_workbench.onnx_graph.graph import standard_opset
from qdq_workbench.onnx_graph.model_files import SUFFIXES, data_files, write_model
from qdq_workbench.placement.lowering import lower
from qdq_workbench.placement.opsets import WIDE_INTEGER_OPSET
from qdq_workbench.placement.plan import PlacementPlan
from qdq_workbench.placement.targets import Target, get_target


@collector_paused()
def export_onnx(
    q_model: QuantizedModel,
    path: str | pathlib.Path,
    *,
    target: str | Target | None = None,
    opset: int | None = None,
    dynamic_batch: bool = True,
    float_type: str = FLOAT32,
    keep_io_types: bool = True,
) -> ExportReport:
    """Write a quantized model to an ONNX file that runs in INT8.

    Batch normalizations are folded, weights are stored as integers followed by DequantizeLinear, and every planned
    tensor gets one QuantizeLinear/DequantizeLinear pair with the scale that the model trained with. The model is
    checked against the plan before it is written, and the file is written atomically.

    Args:
        q_model: A calibrated model made by `quantize_model`; it is only read.
        path: Where to write the file; the folder must exist.
        target: The inference runtime; None for the one that the model was quantized for, and so its name, also if
            that target is an altered one. Another one re-plans the model from its recorded ranges, as `retarget` does.
        opset: The ONNX opset, 13 to 26 (or the newest that the installed onnx knows); None for 17, or 21 where 16-bit
            integers or blocks need it.
        dynamic_batch: Whether the file takes any batch size.
        float_type: The type of the floats: "float32", or "float16" or "bfloat16" for runtimes that compute in the
            types of the file, as TensorRT 11 does. Nodes that would overflow or become inaccurate stay in float32; the
            report lists them with the reasons.
        keep_io_types: Whether the inputs and outputs of a file in half precision stay float32. False: they have
            `float_type`, for programs whose values are in half precision already.

    Returns:
        The file's size, its numbers of pairs and weights, and notes.

    Raises:
        NotQuantizedError: If the model was not made by `quantize_model`.
        UncalibratedError: If an activation quantizer has no range; the message lists the tensors.
        TargetError: If there is no such target.
        OutputPathError: If the file cannot be written, or its name does not end in .onnx.
        ExportError: If the model has a part that cannot be exported, or `opset` or `float_type` is none of the above.

    Example:
        >>> import numpy as np, pathlib, tempfile
        >>> from qdq_workbench import calibrate, quantize_model
        >>> image = keras.Input((2,), name="image")
        >>> q_model = quantize_model(keras.Model(image, keras.layers.Dense(1, name="head")(image)))
        >>> _ = calibrate(q_model, np.ones((1, 2)), verbose=False)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     report = export_onnx(q_model, pathlib.Path(folder) / "model.onnx")
        >>> report.activations, report.weights
        (1, 1)
    """
    started = time.perf_counter()
    given = check_quantized(q_model)
    _check_name(path)
    q_model, notes = planned_for(q_model, target)
    # Before `in_float32`, which discards the dtype policies that the request reads.
    half = half_request(q_model, float_type, ends=not keep_io_types)
    exact = in_float32(q_model)
    if exact is not q_model:
        kept = "" if half is None else " where its layers do"
        notes.append(
            f"The model computes in another precision than float32; the file uses float32{kept} beside its integers."
        )
        q_model = exact
    chosen = q_model.plan.target_object
    # Verification compares the file with its float32 form, which starts from the same conversion.
    conversions = None if half is None else Conversions()
    proto, folded = build_proto(
        q_model, chosen, opset=opset, dynamic_batch=dynamic_batch, half=half, conversions=conversions
    )
    if chosen.file != "onnx":
        notes.append("LiteRT does not read ONNX: export_tflite, or a file that ends in .tflite, is for that runtime.")
    notes.extend(_container_notes(q_model.plan, standard_opset(proto)))
    notes.extend(notes_on_float_weights(proto))
    notes.extend(notes_on_float_means(proto))
    notes.extend([] if half is None else half_notes(half, q_model))
    # For the caller's model, which is the one to verify with. Before `write_model`, which empties a large proto.
    remember_export(given, proto, conversions)
    written = write_model(proto, path)
    tensors = written_tensors(proto)
    activations = sum(kind == "activation" for kind, _ in tensors)
    left_out = [tensor.name for tensor in q_model.plan.tensors if (tensor.kind, tensor.name) not in tensors]
    if left_out:
        notes.append(left_out_note(left_out))
        warn_caller(UserWarning(notes[-1]))
    return ExportReport(
        path=written,
        target=q_model.plan.target_label,
        opset=standard_opset(proto),
        activations=activations,
        weights=len(tensors) - activations,
        folded=folded,
        bytes=sum(part.stat().st_size for part in (written, *data_files(written))),
        seconds=time.perf_counter() - started,
        notes=tuple(notes),
        left_out=tuple(left_out),
        float_type=float_type,
        half_nodes=0 if half is None else len(half.half),
        float32_nodes={} if half is None else half.kept_by_reason,
    )


@interrupts_held()
def build_proto(
    q_model: QuantizedModel,
    target: Target,
    *,
    opset: int | None,
    dynamic_batch: bool,
    half: HalfRequest | None = None,
    conversions: Conversions | None = None,
) -> tuple[onnx.ModelProto, int]:
    """Return the ONNX model of a calibrated one, planned for `target`, and how many batch normalizations were folded.

    `half` is None for float32; its fields `half` and `kept` are set. `conversions` are those of this model in its
    present state; the one that is needed is taken from them or added.
    """
    q_model = in_float32(q_model)
    activations = encode_activations(q_model, target.activation_in_file)
    cut = cut_model(q_model, fold=True, bake_weights=False, take_out_recurrent=True)
    weights = encode_weights(q_model, cut.folds, cut.biases, activations)
    safe_point()
    lowered = (q_model.plan.graph, q_model.plan.onnx_lowering)
    whole = CutModel(cut.inputs, cut.outputs, cut.pairs, cut.weights, cut.recurrent, _large_constants(cut), lowered)
    proto = build_onnx(
        whole,
        activations,
        weights,
        target=target,
        opset=opset,
        dynamic_batch=dynamic_batch,
        half=half,
        convert=None if conversions is None else conversions.under(q_model.plan),
    )
    written = {name for _, name in written_tensors(proto)}
    # Verification expects what the metadata list, so they must not list what no output depends on.
    encodings = {name: encoding for name, encoding in {**activations, **weights}.items() if name in written}
    write_metadata(proto, q_model.plan, encodings, FLOAT32 if half is None else half.kind.name)
    return proto, len({fold.batch_norm.layer for fold in cut.folds})


@interrupts_held()
def export_float_onnx(
    model: keras.Model,
    path: str | pathlib.Path,
    *,
    target: str | Target | None = None,
    opset: int | None = None,
    dynamic_batch: bool = True,
) -> pathlib.Path:
    """Write a float model to an ONNX file with the passes of `export_onnx`, as a baseline for size and speed.

    Args:
        model: A built functional or sequential Keras model; batch normalizations are folded.
        path: Where to write the file.
        target: The runtime that the file is for, by name, or a `Target`; None for a file that all runtimes read well.
            As the baseline of a file for ONNX Runtime it is to be written for ONNX Runtime, too.
        opset: The ONNX opset, 13 to 26 (or the newest that the installed onnx knows); None for 17.
        dynamic_batch: Whether the file takes any batch size.

    Returns:
        The path.

    Raises:
        OutputPathError: If the file cannot be written, or its name does not end in .onnx.
        TargetError: If there is no such target.
        ExportError: If the model has a part that cannot be exported.
    """
    _check_name(path)
    # TensorRT's settings switch off all that depends on a target: float biases, no blocks, whole normalizations.
    wanted = get_target("tensorrt" if target is None else target)
    bound = bind_graph(model)
    lowering = lower(bound.graph, ())
    builder = FoldingRebuilder(bound, lowering.folds)
    builder.run()
    inputs = list(builder.bound.input_tensors)
    structure = keras.tree.flatten(builder.bound.output_structure)
    names = list(unique_names({str(i): n for i, n in enumerate([*inputs, *output_names(model)])}).values())
    outputs = {name: builder.values[ref.name] for name, ref in zip(names[len(inputs) :], structure, strict=True)}
    builder.copy_weights()
    large = large_variables(builder.clones)
    lowered = (bound.graph, lowering)
    cut = CutModel({name: builder.values[name] for name in inputs}, outputs, constants=large, lowered=lowered)
    proto = build_onnx(cut, {}, {}, target=wanted, opset=opset, dynamic_batch=dynamic_batch)
    return write_model(proto, path)


def _large_constants(cut: Cut) -> dict[str, Any]:
    """Return the large variables that stay in float; none if all variables fit into TensorFlow's graph."""
    taken_out = {call.layer for call in cut.recurrent}
    left = {path: layer for path, layer in cut.layers.items() if path not in taken_out}
    return large_variables(left, without=cut.weights.values())


def _container_notes(plan: PlacementPlan, opset: int) -> list[str]:
    """Return notes on how blocks, and integers of other widths than 8 and 16 bits, are stored."""
    odd: dict[tuple[str, int], int] = {}
    for tensor in plan.tensors:
        if tensor.quantizer.num_bits not in (8, 16) and tensor.quantizer.block_size is None:
            key = (tensor.kind, tensor.quantizer.num_bits)
            odd[key] = odd.get(key, 0) + 1
    notes = _notes_on_blocks(plan)
    for (kind, bits), count in sorted(odd.items()):
        what = f"{count} {kind}{'s' if count > 1 else ''} with {bits} bits"
        if kind == "weight" and bits <= 4 and opset >= WIDE_INTEGER_OPSET:
            notes.append(
                f"{what}: stored as 4-bit integers, two in a byte. ONNX Runtime dequantizes them and computes these "
                f"layers in float; an opset below {WIDE_INTEGER_OPSET} keeps its integer kernels and stores 8 bits."
            )
            continue
        stored = 8 if bits < 8 else 16
        smaller = f"; opset={WIDE_INTEGER_OPSET} stores 4 bits" if kind == "weight" and bits <= 4 else ""
        notes.append(
            f"{what}: the values lie on the {bits}-bit grid and are stored as {stored}-bit integers, so the file is "
            f"not smaller than with {stored} bits{smaller}."
        )
    return notes


def _notes_on_blocks(plan: PlacementPlan) -> list[str]:
    """Return notes on how weights in blocks are stored, and which kernel of ONNX Runtime reads them."""
    grids = [tensor.quantizer for tensor in plan.tensors if tensor.quantizer.block_size is not None]
    if not grids:
        return []
    packed = sum(grid.num_bits <= 4 for grid in grids)
    sizes = ", ".join(str(size) for size in sorted({grid.block_size or 0 for grid in grids}))
    stored = f"{packed} of them as 4-bit integers, two in a byte" if packed else "as 8-bit integers"
    note = f"{len(grids)} weight{'s' if len(grids) > 1 else ''} in blocks of {sizes}, stored {stored}."
    if plan.target_object.relu_hides_blocks:
        note += (
            " ONNX Runtime reads them as they are where a matrix product of floats does (MatMulNBits), and by default "
            "rounds that product's input to int8 as it goes; the session option session.qdq_matmulnbits_accuracy_level "
            "set to 1 computes in float32."
        )
    return [note]


def _check_name(path: str | pathlib.Path) -> None:
    """Refuse a file name without the suffix of ONNX; the error names the writers of LiteRT and firmware files."""
    others = {
        ".tflite": "export_tflite(q_model, path) writes LiteRT files",
        ".npz": "files.save_firmware(q_model, path)",
    }
    try:
        check_name(path, SUFFIXES)
    except OutputPathError as error:
        suffix = pathlib.Path(path).suffix.lower() if isinstance(path, str | pathlib.Path) else ""
        if suffix not in others:
            raise
        raise OutputPathError(f"export_onnx writes ONNX files; {others[suffix]}. {error}") from error
