"""Comparison of the biases in a file with the model, independently of the exporter.

A bias of the file is that of the layer, with the normalization and the constants that the plan puts into it. An int32
bias is within half a step of it. Tensor by tensor, a bias that is a few steps off would hide in the rounding of the
results.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import keras
import numpy as np
import onnx

from qdq_workbench.conversion.engine.float_view import float_view
from qdq_workbench.conversion.engine.folding import batch_norm_gain
from qdq_workbench.conversion.engine.quantized_model import QuantizedModel
from qdq_workbench.graph.kinds import CONVOLUTIONS, SEPARABLE
from qdq_workbench.graph.model_graph import Node
from qdq_workbench.graph.operators import HELPERS, WEIGHTED
from qdq_workbench.graph_builder import BoundGraph, layer_weights
from qdq_workbench.onnx_graph.qdq_graph import DEQUANTIZE, QDQGraph
from qdq_workbench.placement.plan import PlacementPlan
from qdq_workbench.verification.planned_values import activation_begins_with, bias_difference


def bias_differences(proto: onnx.ModelProto, q_model: QuantizedModel) -> Iterator[tuple[str, str]]:
    """Yield every layer with an integer kernel in a float32 file, with how its bias differs, "" for not.

    The model is planned for the file's target.
    """
    graph, plan, bound = QDQGraph(proto), q_model.plan, float_view(q_model)
    layers = {call.node.layer: call.operation for call in bound.calls}
    for placement in plan.placements:
        call = None if placement.weight is None else plan.graph.calls(placement.layer)[0]
        if call is None or call.opaque or not call.is_a(*CONVOLUTIONS, "Dense"):
            continue
        readers = [] if placement.weight != _last_kernel(call) else graph.readers(f"{placement.tensor}/dequantized")
        # TensorFlow adds up two constants in a row, in places that no plan tells.
        in_a_row = any(_adds_constant(node) for node, _ in plan.graph.readers(call.outputs[0]))
        if in_a_row and any(node.op_type == "MatMul" for node in readers):
            continue
        wanted = _bias(plan, bound, placement.layer, layers) if readers else None
        begins_with = activation_begins_with(layers[placement.layer])
        if wanted is not None and begins_with is not None:
            held = [_held(graph, node) for node in readers if node.op_type in WEIGHTED]
            told = (bias_difference(*wanted, begins_with, each) for each in held if each is not None)
            yield placement.layer, next((wrong for wrong in told if wrong), "")


def _adds_constant(node: Node) -> bool:
    return node.is_operation and node.class_name == "Add" and len(node.inputs) == 1


def _last_kernel(call: Node) -> str:
    return "pointwise_kernel" if call.is_a(*SEPARABLE) else "kernel"


def _bias(
    plan: PlacementPlan, bound: BoundGraph, layer: str, layers: dict[str, Any]
) -> tuple[np.ndarray, np.ndarray] | None:
    """Return the bias of a layer in a file, and the sum of the magnitudes of its terms; None if it is not known."""
    weights, names = dict(layer_weights(layers[layer])), {call.name for call in plan.graph.calls(layer)}
    found = _array(weights["bias"]) if "bias" in weights else np.zeros(1)
    terms = [found]
    fold = next((each for each in plan.onnx_lowering.folds if each.layer.layer == layer), None)
    if fold is not None:
        gain, shift = batch_norm_gain(layers[fold.batch_norm.layer])
        terms = [found * gain, shift]
    for step in plan.onnx_lowering.of_step("absorbed"):
        node = plan.graph.node(step.node)
        if names.isdisjoint(step.into) or not _adds_constant(node):
            continue
        constant = _constant(bound, step.node)
        if constant is None or len(names) > 1:  # each call of a shared layer has a bias of its own
            return None
        terms.append(constant.reshape(-1))
    return sum(terms[1:], terms[0]), sum((np.abs(term) for term in terms[1:]), np.abs(terms[0]))


def _constant(bound: BoundGraph, name: str) -> np.ndarray | None:
    """Return the one constant operand of an operation."""
    call = next(each for each in bound.calls if each.node.name == name)
    values = [value for value in keras.tree.flatten((call.args, call.kwargs)) if _is_number(value)]
    return _array(values[0]) if len(values) == 1 else None


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float | np.ndarray | np.generic) or keras.ops.is_tensor(value)


def _array(value: Any) -> np.ndarray:
    return np.asarray(keras.ops.convert_to_numpy(value), np.float64)


def _held(graph: QDQGraph, node: onnx.NodeProto) -> tuple[np.ndarray, np.ndarray] | None:
    """Return the bias of a node and the steps of its integers, 0 for floats; None where it is elsewhere."""
    if node.op_type != "MatMul":
        if len(node.input) > 2 and node.input[2]:
            return _values(graph, node.input[2])
        # With open sizes the bias of a convolution stays outside, behind movements.
        return None if _is_added_to(graph, node) else (np.zeros(1), np.zeros(1))
    readers = graph.readers(node.output[0])
    constants = [
        tensor for each in readers if each.op_type == "Add" for tensor in each.input if graph.is_constant(tensor)
    ]
    return _values(graph, constants[0]) if len(readers) == len(constants) == 1 else None


def _is_added_to(graph: QDQGraph, node: onnx.NodeProto) -> bool:
    readers = graph.readers(node.output[0])
    return any(each.op_type == "Add" or (each.op_type in HELPERS and _is_added_to(graph, each)) for each in readers)


def _values(graph: QDQGraph, tensor: str) -> tuple[np.ndarray, np.ndarray] | None:
    constant, dequantize = graph.constant(tensor), graph.producer(tensor)
    if constant is not None:
        return constant.reshape(-1).astype(np.float64), np.zeros(1)
    if dequantize is None or dequantize.op_type != DEQUANTIZE:
        return None
    codes, parameters = graph.constant(dequantize.input[0]), graph.parameters(dequantize)
    if codes is None or parameters is None:
        return None
    steps = parameters[0].reshape(-1).astype(np.float64)
    return codes.reshape(-1) * steps, steps
