"""Comparison of the grids and integers of a `.tflite` file with the model, independently of the exporter.

A new conversion of the model would repeat a fault of the exporter. TensorFlow's converter renames, transposes, reshapes
and merges tensors, so they are identified by their grids and by their sorted values.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from qdq_workbench.conversion.engine.constant_tensors import ConstantTensors, constant_tensors
from qdq_workbench.conversion.engine.quantized_model import QuantizedModel
from qdq_workbench.errors import first_names
from qdq_workbench.export.litert.kernels import KERNELS, Kernel
from qdq_workbench.export.litert.lost_pairs import lost_pairs
from qdq_workbench.export.litert.supported_grids import ROUNDED_BY
from qdq_workbench.export.litert.tflite_file import FLOAT32, INT4, INT8, TFLiteFile, scales_of, unpacked
from qdq_workbench.graph.kinds import BATCH_NORMALIZATION
from qdq_workbench.graph.model_graph import Node
from qdq_workbench.graph.op_kinds import JOINS_CONSTANTS
from qdq_workbench.placement.kept import scales_along_other_axes
from qdq_workbench.placement.plan import PlacementPlan
from qdq_workbench.quantizers import numerics
from qdq_workbench.verification.planned_values import PlannedValues, bias_difference, difference, planned_weights
from qdq_workbench.verification.presence import needed_tensors
from qdq_workbench.verification.report import Check, check_of

_SAME = 1e-3  # of a step: float32's rounding of a constant
_Needed = Mapping[tuple[str, str], bool]  # of `needed_tensors`


@dataclasses.dataclass(frozen=True)
class _Constant:
    """A constant of integers: the number of its subgraph, its index there, its ascending values, and their scales."""

    graph: int
    index: int
    ascending: np.ndarray
    steps: np.ndarray


def check_tflite_integers(file: TFLiteFile, q_model: QuantizedModel) -> Check:
    """Compare grids, integer weights and biases of a file with ranges and weights of a model planned for LiteRT."""
    check = _check(file, q_model, ConstantTensors())
    # Of these a file in which everything is as planned needs not be asked for.
    return check if check.passed else _check(file, q_model, constant_tensors(q_model))


def _check(file: TFLiteFile, q_model: QuantizedModel, constant: ConstantTensors) -> Check:
    """Compare all of a file, which may lack what only the values of constant tensors are computed from."""
    needed = needed_tensors(q_model.plan, constant.values)
    problems = list(_grid_differences(file, q_model, needed, constant))
    try:
        wrong, found, planned = _matched_weights(file, q_model, needed)
        problems += [*wrong, *_bias_differences(file, q_model.plan, found)]
    except ValueError as error:  # of NumPy
        return check_of("integers", [*problems, f"scales that do not fit their tensor: {error}"], "")
    pairs = len(q_model.activation_ranges())
    finding = f"the grids of {pairs} pairs and the values of {len(found)} weights follow from the model"
    if constant.values:
        shown = first_names(list(constant.values))
        finding += f"; the file lacks some that no output depends on, because the values of {shown} never vary"
    if len(found) < planned:
        finding += f"; {planned - len(found)} weights were merged or rearranged by TensorFlow's converter"
    return check_of("integers", problems, finding)


def _grid_differences(
    file: TFLiteFile, q_model: QuantizedModel, needed: _Needed, constant: ConstantTensors
) -> Iterator[str]:
    """Yield the pairs whose grid no tensor of the file has, but those whose rounded values are a constant of it."""
    ranges = q_model.activation_ranges()
    grids = {}
    for pair in q_model.plan.tensors:
        if pair.kind == "activation" and needed.get(("activation", pair.name)):
            grid = numerics.qparams_from_range(*ranges[pair.name], pair.quantizer)
            grids[pair.name] = float(np.float32(grid.scale)), int(grid.zero_point)
    for name, (bits, scale, zero) in lost_pairs(file, q_model.plan, grids):
        if name in constant.rounded and _is_constant_of(file, constant.rounded[name], scale):
            continue
        yield f"no tensor has the grid of the pair {name!r}: scale {scale}, zero point {zero}, int{bits}"


def _is_constant_of(file: TFLiteFile, values: np.ndarray, scale: float) -> bool:
    """Return whether a constant of a file consists of the same numbers, of which a shape may repeat some."""
    wanted = np.unique(values)
    for tensor in (tensor for graph in file.graphs for tensor in graph.tensors):
        codes, scales = file.values(tensor), scales_of(tensor)
        if codes is None or (scales is None and tensor.type != FLOAT32) or (scales is not None and scales.size > 1):
            continue
        held = codes if scales is None else (codes - tensor.quantization.zeroPoint[0]) * scales
        found = np.unique(held.astype(np.float32))
        if found.size == wanted.size and np.abs(found - wanted).max() <= _SAME * scale:
            return True
    return False


def _matched_weights(
    file: TFLiteFile, q_model: QuantizedModel, needed: _Needed
) -> tuple[list[str], dict[str, tuple[PlannedValues, list[_Constant]]], int]:
    """Return what is wrong, the constants that hold each planned weight, and the number of planned weights."""
    plan = q_model.plan
    # LiteRT's scales lie along the output channels; with others the converter rounds once more, on its own scales.
    turned = {placed.tensor for placed in scales_along_other_axes(plan.graph, plan.placements)}
    weights = [
        weight
        for weight in planned_weights(q_model)
        if needed.get(("weight", weight.placement.tensor)) and weight.placement.tensor not in turned
    ]
    constants = list(_integer_constants(file))
    found, taken = {}, set()
    for weight in weights:
        same = [k for k, each in enumerate(constants) if not difference(weight, each.ascending, each.steps)]
        if same:
            found[weight.placement.tensor] = weight, [constants[k] for k in same]
            taken.update(same)
    left = [constant for k, constant in enumerate(constants) if k not in taken and _is_read_as_weight(file, constant)]
    problems = []
    for weight in weights:
        # A function of the user may begin with a product, which the converter multiplies into the weight.
        if weight.placement.tensor not in found and weight.begins_with is not None:
            told = [
                difference(weight, each.ascending, each.steps)
                for each in left
                if each.ascending.size == weight.values.size and not _is_rounded(weight, each)
            ]
            problems += [f"weight {weight.placement.tensor!r}: {wrong}" for wrong in told[:1]]
    return problems, found, len(weights)


def _is_read_as_weight(file: TFLiteFile, constant: _Constant) -> bool:
    """Return whether the exporter writes a constant; a table takes the grid and the range of the pair behind it."""
    readers = {file.name_of(reader.operator) for reader in file.readers(file.graphs[constant.graph], constant.index)}
    return not readers.isdisjoint({*KERNELS, "DEQUANTIZE"})


def _is_rounded(weight: PlannedValues, constant: _Constant) -> bool:
    """Return whether a constant is a weight that the converter rounded on scales of its own.

    It does so to a weight whose scales the exporter has raised for a bias beyond int32, where the input has a smaller
    scale than the converter's least: beside such a bias no value of the weight counts.
    """
    apart = np.abs(weight.ascending - constant.ascending)
    raised = weight.raised if weight.raised > weight.scales.min(initial=np.inf) else 0.0
    return bool((apart <= ROUNDED_BY * (constant.steps.max() + raised)).all())


def _integer_constants(file: TFLiteFile) -> Iterator[_Constant]:
    for number, graph in enumerate(file.graphs):
        for index, tensor in enumerate(graph.tensors):
            scales = scales_of(tensor)
            if scales is None or tensor.type not in (INT8, INT4) or not file.data(tensor):
                continue
            codes = unpacked(file, tensor).astype(np.float32)
            along = [1] * codes.ndim
            if scales.size > 1:
                along[tensor.quantization.quantizedDimension] = -1
            # A table has the zero point of the pair behind it.
            zeros = np.asarray(tensor.quantization.zeroPoint, np.float32).reshape(along)
            yield _Constant(number, index, np.sort((codes - zeros) * scales.reshape(along), axis=None), scales)


def _bias_differences(
    file: TFLiteFile, plan: PlacementPlan, found: dict[str, tuple[PlannedValues, list[_Constant]]]
) -> Iterator[str]:
    """Yield the kernels whose bias is not that of the layer whose weight they read."""
    owners: dict[tuple[int, int], list[PlannedValues]] = {}
    for weight, constants in found.values():
        for constant in constants:
            owners.setdefault((constant.graph, constant.index), []).append(weight)
    for number, graph in enumerate(file.graphs):
        for operator in graph.operators:
            kernel = KERNELS.get(file.name_of(operator))
            owner = [] if kernel is None else owners.get((number, int(operator.inputs[kernel.weight])), [])
            # Zeros may be those of any layer.
            begins_with = owner[0].begins_with if len(owner) == 1 and owner[0].ascending.any() else None
            if kernel is None or begins_with is None or _is_followed_by_constant(plan, owner[0].placement.layer):
                continue
            held, wanted = _held(file, graph, operator, kernel), owner[0].bias.reshape(-1).astype(np.float64)
            wrong = "" if held is None else bias_difference(wanted, np.abs(wanted), begins_with, held)
            if wrong:
                yield f"bias of {owner[0].placement.layer!r}: {wrong}"


def _held(file: TFLiteFile, graph: Any, operator: Any, kernel: Kernel) -> tuple[np.ndarray, np.ndarray] | None:
    """Return the bias of a kernel and the steps of its integers, 0 for floats; None where it is elsewhere."""
    if kernel.bias >= len(operator.inputs) or operator.inputs[kernel.bias] < 0:
        return None if _is_added_to(file, graph, operator) else (np.zeros(1), np.zeros(1))
    tensor = graph.tensors[operator.inputs[kernel.bias]]
    codes, scales = file.values(tensor), scales_of(tensor)
    if codes is None:
        return None
    steps = np.zeros(1) if scales is None else scales.astype(np.float64)
    return (codes.astype(np.float64) * (1 if scales is None else steps)).reshape(-1), steps


def _is_added_to(file: TFLiteFile, graph: Any, operator: Any) -> bool:
    """Return whether a constant is added to the result of a kernel, behind reshapes."""
    # TensorFlow moves a bias of one number behind the reshape of a `Conv1DTranspose`.
    for reader in file.readers(graph, operator.outputs[0]):
        name = file.name_of(reader.operator)
        beside = [tensor for tensor in reader.operator.inputs if file.data(graph.tensors[tensor])]
        if (name == "ADD" and beside) or (name == "RESHAPE" and _is_added_to(file, graph, reader.operator)):
            return True
    return False


def _is_followed_by_constant(plan: PlacementPlan, layer: str) -> bool:
    """Return whether the converter may put a constant of the next layer into the bias of this one."""
    folds = {fold.batch_norm.layer for fold in plan.lowering.folds}
    readers = [node for call in plan.graph.calls(layer) for node, _ in plan.graph.readers(call.outputs[0])]
    return any(_is_linear(node) and node.layer not in folds for node in readers)


def _is_linear(node: Node) -> bool:
    # An operation with one tensor has a constant as its other operand, or is moved past.
    constant = node.is_operation or node.settings.get(JOINS_CONSTANTS, False)
    return len(node.inputs) == 1 and (constant or node.is_a(*BATCH_NORMALIZATION) or node.is_a("Rescaling"))
