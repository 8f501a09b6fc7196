"""Comparison of the biases in a file with the model, independently of the exporter.

A bias of the file is that of the layer, with the normalization and the constants that the plan puts into it. An int32
bias is within half a step of it. Tensor by tensor, a bias that is a few steps off would hide in the rounding of the
results.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

import keras
import numpy as np
import onnx

from qdq_workbench.conversion.engine.float_view import float_view
from qdq_workbench.conversion.engine.folding import batch_norm_gain
from qdq_workbench.conversion.engine.quantized_model import QuantizedModel
from qdq_workbench.export.node_names import layer_of, layers_by_name
from qdq_workbench.graph.kinds import CONVOLUTIONS, SEPARABLE
from qdq_workbench.graph.model_graph import Node
from qdq_workbench.graph.op_kinds import adds_constant
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
    layers, names = {call.node.layer: call.operation for call in bound.calls}, layers_by_name(plan.graph.layers)
    own: dict[str | None, set[str]] = {}
    for node in graph.nodes:
        own.setdefault(layer_of(node.name, names), set()).add(node.name)
    for placement in plan.placements:
        call = None if placement.weight is None else plan.graph.calls(placement.layer)[0]
        if call is None or call.opaque or not call.is_a(*CONVOLUTIONS, "Dense"):
            continue
        readers = [] if placement.weight != _last_kernel(call) else graph.readers(f"{placement.tensor}/dequantized")
        # TensorFlow may have added up a constant that the plan puts into the bias and the one behind it.
        if _absorbed(plan, placement.layer) and any(_added_behind(graph, node) for node in readers):
            continue
        wanted = _bias(plan, bound, placement.layer, layers) if readers else None
        begins_with = activation_begins_with(layers[placement.layer])
        if wanted is not None and begins_with is not None:
            nodes = own.get(placement.layer, set())
            held = [_held(graph, node, nodes) for node in readers if node.op_type in WEIGHTED]
            told = (bias_difference(*wanted, begins_with, each) for each in held if each is not None)
            yield placement.layer, next((wrong for wrong in told if wrong), "")


def _last_kernel(call: Node) -> str:
    return "pointwise_kernel" if call.is_a(*SEPARABLE) else "kernel"


def _bias(
    plan: PlacementPlan, bound: BoundGraph, layer: str, layers: dict[str, Any]
) -> tuple[np.ndarray, np.ndarray] | None:
    """Return the bias of a layer in a file, and the sum of the magnitudes of its terms; None if it is not known."""
    weights = dict(layer_weights(layers[layer]))
    found = _array(weights["bias"]) if "bias" in weights else np.zeros(1)
    terms = [found]
    fold = next((each for each in plan.onnx_lowering.folds if each.layer.layer == layer), None)
    if fold is not None:
        gain, shift = batch_norm_gain(layers[fold.batch_norm.layer])
        terms = [found * gain, shift]
    for node in _absorbed(plan, layer):
        constant = _constant(bound, node.name)
        if constant is None or len(plan.graph.calls(layer)) > 1:  # each call of a shared layer has a bias of its own
            return None
        terms.append(constant.reshape(-1))
    return sum(terms[1:], terms[0]), sum((np.abs(term) for term in terms[1:]), np.abs(terms[0]))


def _absorbed(plan: PlacementPlan, layer: str) -> list[Node]:
    """Return the additions of a constant that become a part of the bias of a layer."""
    calls = {call.name for call in plan.graph.calls(layer)}
    steps = (step for step in plan.onnx_lowering.of_step("absorbed") if not calls.isdisjoint(step.into))
    return [node for step in steps if adds_constant(node := plan.graph.node(step.node))]


def _constant(bound: BoundGraph, name: str) -> np.ndarray | None:
    """Return the one constant operand of an operation."""
    call = next(each for each in bound.calls if each.node.name == name)
    values = [value for value in keras.tree.flatten((call.args, call.kwargs)) if _is_number(value)]
    return _array(values[0]) if len(values) == 1 else None


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float | np.ndarray | np.generic) or keras.ops.is_tensor(value)


def _array(value: Any) -> np.ndarray:
    return np.asarray(keras.ops.convert_to_numpy(value), np.float64)


def _held(graph: QDQGraph, node: onnx.NodeProto, own: Collection[str]) -> tuple[np.ndarray, np.ndarray] | None:
    """Return the bias of a node and the steps of its integers, 0 for floats; None where it is elsewhere.

    `own` are the names of the nodes of its layer.
    """
    if node.op_type != "MatMul":
        if len(node.input) > 2 and node.input[2]:
            return _values(graph, node.input[2])
        # With open sizes the bias of a convolution stays outside, behind movements.
        return None if _is_added_to(graph, node) else (np.zeros(1), np.zeros(1))
    # What another layer adds is no bias. TensorFlow adds up constants in a row, and names the sum after the last layer.
    readers, constants = graph.readers(node.output[0]), _added_behind(graph, node, own)
    return _values(graph, constants[0]) if len(readers) == len(constants) == 1 else None


def _added_behind(graph: QDQGraph, node: onnx.NodeProto, own: Collection[str] | None = None) -> list[str]:
    """Return the constants that the readers of a node add to its result, or those with a name in `own`."""
    added = [each for each in graph.readers(node.output[0]) if each.op_type == "Add"]
    found = [each for each in added if own is None or each.name in own]
    return [tensor for each in found for tensor in each.input if graph.is_constant(tensor)]


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
