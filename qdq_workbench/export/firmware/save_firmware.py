"""`save_firmware`: a quantized model as integer arrays and a list of operators, for hardware without a runtime."""

from __future__ import annotations

import dataclasses
import json
import pathlib
import zipfile
from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np

import qdq_workbench
from qdq_workbench._files import Writing, check_name, write_together, writes_text
from qdq_workbench._interrupts import interrupts_held, safe_point
from qdq_workbench._pages import page
from qdq_workbench.conversion.engine.cut import cut_model
from qdq_workbench.conversion.engine.quantized_model import QuantizedModel, check_quantized
from qdq_workbench.conversion.engine.retarget import in_float32
from qdq_workbench.errors import ExportError, TargetError
from qdq_workbench.export.encode import encode_activations, encode_weights
from qdq_workbench.export.firmware.c_header import c_header as header_text
from qdq_workbench.export.firmware.program import WHAT_IT_LACKS, Program
from qdq_workbench.export.firmware.walk import Walk
from qdq_workbench.export.other_targets import planned_for
from qdq_workbench.placement.plan import PlacementPlan
from qdq_workbench.placement.planner import meant_target
from qdq_workbench.placement.targets import Target, get_target, target_names

FORMAT = "qdq-workbench/firmware"
_SUFFIXES = (".npz",)
_PATHS = ("path", "c_header", "interpreter")
_MODEL = "model.json"
_ARITHMETIC = {
    "value": "(integer - zero_point) * scale",
    "accumulator": "int32: sum of (input - zero_point) * weight, plus bias; weights have the zero point 0",
    "float": "rint(accumulator * (input scale * weight scale / output scale)) + zero_point, in float32, halves to even",
    "fixed point": "round(round_half_up(accumulator * 2^max(shift, 0) * multiplier / 2^31) / 2^max(-shift, 0)) + "
    "zero_point, halves away from zero; arm_nn_requantize, MultiplyByQuantizedMultiplier",
    "clamp": "lowest and highest integer of the result; it holds the activation",
}


@dataclasses.dataclass(frozen=True)
class FirmwareReport:
    """The files that `save_firmware` wrote, and their sizes.

    Args:
        path: The file.
        target: The target whose encodings it has, as `PlacementPlan.target_label`: "litert", or "litert (altered)".
        operators: Operator -> number of its nodes.
        weights: Number of weights; one that several calls share counts once.
        multiply_accumulates: Multiply-accumulate operations of convolutions and matrix products, per sample.
        largest_tensors: Largest sum of the input and output tensors of one node, in bytes: a lower bound of the RAM
            for activations.
        bytes: Bytes of the weights, biases, multipliers and shifts: the flash for constants.
        c_header: The C header; None if none was requested.
        interpreter: The reference interpreter; None if none was requested.
        notes: Remarks for the user, such as that the model was planned anew.
    """

    path: pathlib.Path
    target: str
    operators: Mapping[str, int]
    weights: int
    multiply_accumulates: int
    largest_tensors: int
    bytes: int
    c_header: pathlib.Path | None = None
    interpreter: pathlib.Path | None = None
    notes: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return the report as a JSON-compatible dictionary."""
        paths = {key: None if (path := getattr(self, key)) is None else str(path) for key in _PATHS}
        return {**dataclasses.asdict(self), **paths, "operators": dict(self.operators), "notes": list(self.notes)}

    def summary(self) -> str:
        """Return the report as a few lines of text."""
        shown = ", ".join(f"{count} {name}" for name, count in sorted(self.operators.items()))
        others = [f"wrote {path}" for path in (self.c_header, self.interpreter) if path is not None]
        room = f"activations need at least {self.largest_tensors / 1024:.1f} KiB"
        return "\n".join(
            [
                f"{self.path}: for {self.target}, {self.weights} weights, constants of {self.bytes / 1024:.1f} KiB",
                f"nodes: {shown}",
                f"{self.multiply_accumulates:,} products per sample; {room}",
                *others,
                *self.notes,
                f"the format and the reference interpreter: {page('howto/firmware.md')}",
            ]
        )


@interrupts_held()
def save_firmware(
    q_model: QuantizedModel,
    path: str | pathlib.Path,
    *,
    target: str | Target | None = None,
    c_header: str | pathlib.Path | None = None,
    interpreter: str | pathlib.Path | None = None,
) -> FirmwareReport:
    """Write a quantized model as integers for firmware: topology, weights, biases, scales, multipliers and shifts.

    The file is a `.npz` archive. `model.json` in it lists the tensors (shape, axes, scale, zero point), the arrays
    (axes) and the nodes in execution order, each with its operator, input and output tensors, strides, padding,
    dilation, groups and the clamp that computes its activation. The arrays are

        <layer>/kernel            int8, axes OHWI for Conv2D, 1HWO for DepthwiseConv2D, OI for Dense
        <layer>/kernel/scale      float32 s_w, one per output channel
        <call>/bias               int32, scale s_x * s_w, zero point 0
        <call>/multiplier, shift  int32, s_x * s_w / s_y = multiplier * 2^(shift - 31)

    with batch normalizations folded. Integers, scales and zero points are those that `export_onnx` writes for the same
    target. Tensors are channels-last, as in TensorFlow Lite and CMSIS-NN.

    Args:
        q_model: A calibrated model made by `quantize_model`; it is only read.
        path: File name ending in `.npz`.
        target: "onnxruntime" for uint8 activations, "litert" for int8 ones as CMSIS-NN and TensorFlow Lite Micro take
            them; None for the one that the model was quantized for, and so its name, also if that target is an
            altered one. Another one re-plans the model from its recorded ranges, as `retarget` does.
        c_header: File name of a C header with the same content, ending in `.h`; None for none.
        interpreter: File name of the reference interpreter, ending in `.py`: about a hundred lines that compute the
            model from the file with NumPy alone; None for none.

    Returns:
        The files and their sizes.

    Raises:
        NotQuantizedError: If the model was not made by `quantize_model`.
        UncalibratedError: If an activation quantizer has no range; the message lists the tensors.
        TargetError: If there is no such target, or the biases of its files are floats.
        ExportError: If a layer has no integer form; the message names the layers and says what to do.
        OutputPathError: If a file cannot be written, or its name has another suffix.

    Sources: Jacob et al. 2018, arXiv:1712.05877, section 2.2 (products of integers, requantization); gemmlowp and
    TensorFlow Lite, `QuantizeMultiplier`; CMSIS-NN, `arm_nn_requantize`.

    Example:
        >>> import keras, tempfile
        >>> from qdq_workbench import calibrate, quantize_model
        >>> image = keras.Input((2,), name="image")
        >>> model = keras.Model(image, keras.layers.Dense(1, name="head")(image))
        >>> q_model = quantize_model(model, target="litert")
        >>> _ = calibrate(q_model, np.ones((1, 2)), verbose=False)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     save_firmware(q_model, pathlib.Path(folder) / "model.npz").operators["Dense"]
        1
    """
    check_quantized(q_model)
    check_name(path, _SUFFIXES)
    for other, suffix in ((c_header, ".h"), (interpreter, ".py")):
        if other is not None:
            check_name(other, (suffix,))
    # Before `planned_for`, which plans and rebuilds the whole model.
    _check_target(meant_target(q_model.plan, target))
    q_model, notes = planned_for(q_model, target)
    program, outputs = _program(in_float32(q_model))
    safe_point()
    document = _document(q_model.plan, program, dict(zip(q_model.source_output_names, outputs, strict=True)))
    files: list[tuple[str | pathlib.Path, Writing]] = [
        (path, lambda temporary: _write(temporary, document, program.arrays))
    ]
    if c_header is not None:
        files.append((c_header, writes_text(header_text(document, program.arrays))))
    if interpreter is not None:
        files.append((interpreter, writes_text(interpreter_text())))
    written = write_together(files)
    return FirmwareReport(
        path=written[0],
        target=q_model.plan.target_label,
        operators=Counter(node["operator"] for node in program.nodes),
        weights=len({node["arrays"]["weights"] for node in program.nodes if "weights" in node["arrays"]}),
        multiply_accumulates=sum(_products(program, node) for node in program.nodes),
        largest_tensors=max((_bytes_at(program, node) for node in program.nodes), default=0),
        # Kernels read multipliers and shifts; the float32 scales of weights are for readers of the file.
        bytes=sum(array.nbytes for array in program.arrays.values() if array.dtype != np.float32),
        c_header=None if c_header is None else pathlib.Path(c_header),
        interpreter=None if interpreter is None else pathlib.Path(interpreter),
        notes=tuple(notes),
    )


def interpreter_text() -> str:
    """Return the reference interpreter as text."""
    return pathlib.Path(__file__).with_name("interpreter.py").read_text(encoding="utf-8")


def _check_target(target: Target) -> None:
    """Refuse a target whose files have float biases, which no integer kernel reads."""
    if target.bias != "int32":
        known = [name for name in target_names() if get_target(name).bias == "int32"]
        raise TargetError(
            "Firmware adds int32 biases, and the files of this target have float ones. Give target= one of "
            f"{', '.join(map(repr, known))}. Received: target={target.name!r}"
        )


def _program(q_model: QuantizedModel) -> tuple[Program, list[str]]:
    """Return the program of a model, and the names of its output tensors in the model's order."""
    _check_grids(q_model.plan)
    activations = encode_activations(q_model)
    cut = cut_model(q_model, fold=True, bake_weights=False)
    walk = Walk(q_model.plan, activations, encode_weights(q_model, cut.folds, cut.biases, activations), cut.biases)
    found = walk.run()
    return walk.program, [found[tensor] for tensor in q_model.plan.graph.outputs]


def _check_grids(plan: PlacementPlan) -> None:
    for tensor in plan.tensors:
        spec = tensor.quantizer
        whole = spec.num_bits == 8 and not (spec.narrow_range and tensor.kind == "activation")
        if not (whole or (tensor.kind == "weight" and spec.num_bits <= 8)):
            raise ExportError(
                "Firmware has activations of 8 bits on the whole of their type, and weights of at most 8 bits. "
                f"Quantize {tensor.name!r} so; more on {WHAT_IT_LACKS}. "
                f"Received: num_bits={spec.num_bits}, narrow_range={spec.narrow_range}"
            )


def _document(plan: PlacementPlan, program: Program, outputs: Mapping[str, str]) -> dict[str, Any]:
    arrays = {
        name: {"dtype": str(array.dtype), "shape": list(array.shape), "axes": program.axes[name]}
        for name, array in program.arrays.items()
    }
    return {
        "format": FORMAT,
        "version": 1,
        "made_by": f"qdq-workbench {qdq_workbench.__version__}",
        "model": plan.graph.name,
        "target": plan.target_label,
        "arithmetic": _ARITHMETIC,
        "inputs": list(plan.graph.inputs),
        "outputs": dict(outputs),
        "tensors": program.tensors,
        "arrays": arrays,
        "nodes": program.nodes,
    }


def _write(path: pathlib.Path, document: Mapping[str, Any], arrays: Mapping[str, Any]) -> None:
    with path.open("wb") as file:
        np.savez(file, **arrays)  # NumPy before 2.1 takes `allow_pickle` for an array
    with zipfile.ZipFile(path, "a") as archive:
        # ZipInfo has a fixed date, as NumPy's own parts: the same model gives the same bytes.
        archive.writestr(zipfile.ZipInfo(_MODEL), json.dumps(document, indent=1) + "\n")


def _products(program: Program, node: Mapping[str, Any]) -> int:
    """Return the number of products of inputs and weights that a node computes per sample."""
    weights = node["arrays"].get("weights")
    if weights is None:
        return 0
    values, axes = program.arrays[weights], program.axes[weights]
    per_output = values.size // values.shape[axes.index("O")]
    return int(per_output * np.prod(program.tensors[node["outputs"][0]]["shape"]))


def _bytes_at(program: Program, node: Mapping[str, Any]) -> int:
    """Return the bytes of a node's input and output tensors, for one sample."""
    tensors = [program.tensors[name] for name in {*node["inputs"], *node["outputs"]}]
    return sum(int(np.prod(tensor["shape"])) * np.dtype(tensor["dtype"]).itemsize for tensor in tensors)
