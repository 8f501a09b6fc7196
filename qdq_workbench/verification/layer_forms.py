"""Comparison of the operators that a file holds of each layer with those that are left where every pass has worked.

Operators of shapes do not count: those that hold floats are told from them by the types of their results.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import onnx

from qdq_workbench.export.passes.keep_clips_from_blocks import APART
from qdq_workbench.graph.contractions import product_terms
from qdq_workbench.graph.kinds import UPSAMPLINGS
from qdq_workbench.graph.model_graph import Node
from qdq_workbench.onnx_graph.qdq_graph import NARROWING, QDQGraph, keeps_in_float
from qdq_workbench.placement.plan import PlacementPlan
from qdq_workbench.verification.lowered import layer_operators
from qdq_workbench.verification.typed_file import TypedFile

_SECOND = f"Min{APART['Clip']}"  # of the two operators that replace a Clip; the first stands for both
_LEAST_OPSET = 17  # the first with LayerNormalization
_IMAGE_RANK = 4
# Operators of an activation or a layer in the form in which tf2onnx writes it, which runtimes do not fuse.
_UNFUSED = {
    "gelu": frozenset({"Neg", "Sub"}),
    "clipped_relu": frozenset({"Max", "Min", "Relu"}),
}
# Of those that are in the file as HardSigmoid for some targets.
_STEPS = dict.fromkeys(("hard_sigmoid", "hard_silu"), frozenset({"Clip"}))


def layer_differences(file: TypedFile, opset: int) -> Iterator[str]:
    """Yield where a file holds other operators of a layer than its passes leave."""
    yield from _surplus(file)
    for layer in file.layers:
        calls = file.plan.graph.calls(layer)
        if calls[0].inputs and not calls[0].opaque:
            for wrong in _left_over(file, calls, file.nodes(layer), opset):
                yield f"of {layer!r} the file holds {wrong}"


def _surplus(file: TypedFile) -> Iterator[str]:
    """Yield the float operators of layers beyond those of the plan."""
    floats = [node for node in file.graph.nodes if file.is_float(node.output[0]) and not node.name.endswith(_SECOND)]
    for item in layer_operators(file.plan, floats):
        surplus = item.found - item.expected
        if surplus and not _is_beside_unknown(file.plan, item.layer):
            shown = ", ".join(f"{count} {operator}" for operator, count in sorted(surplus.items()))
            yield f"of {item.layer!r} the file holds {shown} more than the plan"


def _is_beside_unknown(plan: PlacementPlan, layer: str) -> bool:
    """Return whether the plan does not know the operators of a neighbour, which may be named after the layer."""
    graph, lowered = plan.graph, plan.onnx_lowering.nodes
    calls = graph.calls(layer)
    before = {graph.producer(tensor).name for call in calls for tensor in call.inputs}
    behind = {node.name for call in calls for tensor in call.outputs for node, _ in graph.readers(tensor)}
    return any(lowered[name].operators is None for name in before | behind if name in lowered)


def _left_over(file: TypedFile, calls: list[Node], nodes: list[onnx.NodeProto], opset: int) -> Iterator[str]:
    """Yield the operators of one layer that no file holds where the passes have worked."""
    call, plan = calls[0], file.plan
    held = Counter(node.op_type for node in nodes if not _changes_nothing(node))
    unfused = _UNFUSED.get(call.activation_name, frozenset())
    if plan.target_object.joins_hard_sigmoids:
        unfused |= _STEPS.get(call.activation_name, frozenset())
    for operator in sorted(unfused & held.keys()):
        yield f"the {operator} of an activation in a form that no runtime fuses"
    if call.is_a("RMSNormalization") and any(_scales_reciprocal(file.graph, node) for node in nodes):
        yield "a normalization by a Reciprocal, which no runtime fuses"
    if "ReduceMean" in held and _is_one_operator(file, call, opset):
        yield "a layer normalization in steps"
    if "Tile" in held and call.is_a(*UPSAMPLINGS) and None not in plan.graph.tensors[call.inputs[0]].shape[1:]:
        yield "a repetition by Tile in place of a Resize"
    if plan.onnx_lowering.nodes[call.name].operators == ("GlobalAveragePool",) and _is_pool(file, calls, nodes):
        yield "a ReduceMean between pairs, or over channels-first images, in place of a GlobalAveragePool"
    yield from (f"an Einsum that is a matrix product: {node.name!r}" for node in nodes if _is_product(node))


def _changes_nothing(node: onnx.NodeProto) -> bool:
    """Return whether a node is no part of what a layer computes, or stands for an operator that was written apart."""
    return node.name.endswith((NARROWING, *APART.values())) or keeps_in_float(node)


def _scales_reciprocal(graph: QDQGraph, node: onnx.NodeProto) -> bool:
    """Return whether a node is a Reciprocal that is multiplied by constant factors; factors of 1 are left out."""
    products = (each for each in graph.readers(node.output[0]) if each.op_type == "Mul")
    return node.op_type == "Reciprocal" and any(_is_vector(graph, tensor) for each in products for tensor in each.input)


def _is_vector(graph: QDQGraph, tensor: str) -> bool:
    value = graph.constant(tensor)
    return value is not None and value.size > 1  # of one channel, the exporter leaves it in steps


def _is_one_operator(file: TypedFile, call: Node, opset: int) -> bool:
    """Return whether a file holds one LayerNormalization for a layer."""
    if opset < _LEAST_OPSET or call.is_operation or not call.is_a("LayerNormalization"):
        return False
    shape, axis = file.plan.graph.tensors[call.inputs[0]].shape, call.settings.get("axis", -1)
    alone = not any(p.weight is not None and p.layer == call.layer for p in file.plan.placements)
    in_place = not (file.plan.target_object.slow_transposes and len(shape) >= _IMAGE_RANK)
    return alone and in_place and shape[-1] is not None and axis in (-1, [-1], (-1,), len(shape) - 1, [len(shape) - 1])


def _is_pool(file: TypedFile, calls: list[Node], nodes: list[onnx.NodeProto]) -> bool:
    """Return whether a mean over images stands where a runtime has a kernel for a GlobalAveragePool."""
    plan = file.plan
    if all(plan.input_placement(call.name, 0) and plan.output_placement(call.outputs[0]) for call in calls):
        return any(node.op_type == "ReduceMean" for node in nodes)
    if calls[0].settings.get("data_format") == "channels_first":
        return False
    return any(_mean_axes(file.graph, node) == [2, 3] for node in nodes)


def _mean_axes(graph: QDQGraph, node: onnx.NodeProto) -> list[int]:
    if node.op_type != "ReduceMean":
        return []
    given = next((list(each.ints) for each in node.attribute if each.name == "axes"), None)
    constant = graph.constant(node.input[1]) if given is None and len(node.input) > 1 else None
    return given or ([] if constant is None else [int(axis) for axis in constant])


def _is_product(node: onnx.NodeProto) -> bool:
    """Return whether a node is an Einsum that sums over one letter and has one other letter of each operand."""
    if node.op_type != "Einsum" or len(node.input) != 2:
        return False
    equation = next(each.s for each in node.attribute if each.name == "equation").decode().replace(" ", "")
    left, right, result = product_terms(equation)
    if "." in equation or "->" not in equation or any(len(set(term)) < len(term) for term in (left, right, result)):
        return False
    summed = (set(left) & set(right)) - set(result)
    own = [set(left) - set(right), set(right) - set(left)]
    return len(summed) == 1 and all(len(each) == 1 and each <= set(result) for each in own)
