"""Comparison of the operators of every layer in a file with those of the plan's lowering.

The name of a node in a file starts with the layer that it belongs to, so the operators of a layer can be counted. The
expected operators come from the plan alone, not from the exporter.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping

import onnx

from qdq_workbench.export.node_names import layer_of, layers_by_name
from qdq_workbench.export.passes.keep_clips_from_blocks import APART
from qdq_workbench.graph.operators import HELPERS, written_for
from qdq_workbench.graph.twins import twins_of
from qdq_workbench.onnx_graph.qdq_graph import NARROWING, PAIR_OPERATORS, keeps_in_float, without_running_number
from qdq_workbench.placement.plan import PlacementPlan

# Operators that no converter adds to compute shapes, indices or masks, so an unexpected one is always a difference.
_COMPUTING = frozenset(
    {
        "AveragePool",
        "Conv",
        "ConvTranspose",
        "Elu",
        "LeakyRelu",
        "MatMul",
        "MaxPool",
        "Relu",
        "Sigmoid",
        "Softmax",
        "Tanh",
    }
)


@dataclasses.dataclass(frozen=True)
class LayerOperators:
    """The operators of one layer, over all its calls.

    Args:
        layer: Path of the layer.
        expected: Counts by operator in the plan; for layers with weights without Add, because TensorFlow omits the
            addition of a zero bias.
        found: Counts by operator in the file, with the same exception.
    """

    layer: str
    expected: Counter[str]
    found: Counter[str]


def operators_by_layer(plan: PlacementPlan, nodes: Iterable[onnx.NodeProto]) -> dict[str, Counter[str]]:
    """Return the operators in a file by layer, without Q/DQ and without operators that only move or cast values."""
    names = layers_by_name(plan.graph.layers)
    held = _operators_by_layer(plan, nodes, names)
    wanted = {layer: _expected(plan, layer) for layer in names.values()}
    _credit_absorber(plan, held, wanted)
    _credit_twins(plan, held, wanted)
    return held


def layer_operators(plan: PlacementPlan, nodes: Collection[onnx.NodeProto]) -> Iterator[LayerOperators]:
    """Yield the operators of every layer whose operators the plan knows."""
    held = operators_by_layer(plan, nodes)
    wanted = {layer: _expected(plan, layer) for layer in layers_by_name(plan.graph.layers).values()}
    for layer, expected in wanted.items():
        if expected is not None:
            found = held.get(layer, Counter())
            biased = bool(plan.graph.calls(layer)[0].weights and expected)
            both = (_without_biases(expected), _without_biases(found)) if biased else (expected, found)
            yield LayerOperators(layer, *both)


def lowering_differences(plan: PlacementPlan, nodes: Collection[onnx.NodeProto]) -> list[str]:
    """Return the differences between a file's operators and the plan's lowering, one sentence each.

    A missing operator is a difference only for a layer whose integer weights are in the file: converters merge equal
    operations and nested concatenations, and the exporter omits parts that no output depends on. The plan is that of
    the export, or of the same model planned again for the file's target.
    """
    problems = []
    problems += _computed_by_movements(plan, nodes)
    integers = {node.name.removesuffix("/DequantizeLinear") for node in nodes if node.op_type == "DequantizeLinear"}
    for item in layer_operators(plan, nodes):
        calls = plan.graph.calls(item.layer)
        # Converters add arithmetic of shapes and masks to layers with operators, so only computing ones count there.
        extra = {operator for operator in item.found - item.expected if not item.expected or operator in _COMPUTING}
        weighs = any(f"{item.layer}/{weight.name}" in integers for weight in calls[0].weights)
        # Calls of a shared layer on the same inputs are merged into one in the file.
        called_alike = len({call.inputs for call in calls}) < len(calls)
        missing = item.expected - item.found if weighs and not called_alike else Counter[str]()
        if extra or missing:
            reasons = {plan.onnx_lowering.nodes[call.name].reason for call in calls} - {""}
            why = f" ({'; '.join(sorted(reasons))})" if reasons else ""
            problems.append(
                f"of {item.layer!r} the file holds {_shown(item.found)}, expected {_shown(item.expected)}{why}"
            )
    return problems


def _computed_by_movements(plan: PlacementPlan, nodes: Collection[onnx.NodeProto]) -> list[str]:
    """Return a sentence for each layer that only moves values in the plan but has compute operators in the file."""
    moving = {plan.graph.node(lowered.node).layer for lowered in plan.onnx_lowering.of_step("moved")}
    return [
        f"of {layer!r} the file holds {_shown(computing)}, expected nothing that computes: it only moves values"
        for layer, found in operators_by_layer(plan, nodes).items()
        if layer in moving and (computing := Counter({op: n for op, n in found.items() if op in _COMPUTING}))
    ]


def _expected(plan: PlacementPlan, layer: str) -> Counter[str] | None:
    """Return the operators of all calls of a layer; None if the plan does not know those of one call."""
    written = [plan.onnx_lowering.nodes[call.name].operators for call in plan.graph.calls(layer)]
    if any(operators is None for operators in written):
        return None
    return Counter(operator for operators in written for operator in operators or ())


def _credit_absorber(
    plan: PlacementPlan, held: dict[str, Counter[str]], wanted: Mapping[str, Counter[str] | None]
) -> None:
    """Move an operator's count to the layer that it belongs to where TensorFlow named it after an absorbed layer.

    TensorFlow folds an addition of a per-channel constant into the bias before it, and names the result after the
    addition.
    """
    for step in (*plan.onnx_lowering.of_step("absorbed"), *plan.onnx_lowering.of_step("folded")):
        named, layer = (plan.graph.node(name).layer for name in (step.node, step.into[0] if step.into else step.node))
        expected = wanted.get(layer)
        if named != layer and expected is not None and named in held:
            # Only what the absorbing layer lacks; the rest are operators of the layer that they are named after.
            taken = (expected - held.get(layer, Counter())) & held[named]
            held[named] = held[named] - taken
            held.setdefault(layer, Counter()).update(taken)


def _credit_twins(
    plan: PlacementPlan, held: dict[str, Counter[str]], wanted: Mapping[str, Counter[str] | None]
) -> None:
    """Move what a layer has too much of to an equal one that lacks it: converters name what they merge after one."""
    for layer, expected in wanted.items():
        if expected is None or layer not in held:
            continue
        for twin in sorted(twins_of(plan.graph, layer)):
            taken = (held[layer] - expected) & ((wanted.get(twin) or Counter()) - held.get(twin, Counter()))
            if taken:
                held[layer] -= taken
                held.setdefault(twin, Counter()).update(taken)


def _without_biases(operators: Counter[str]) -> Counter[str]:
    return Counter({operator: count for operator, count in operators.items() if operator != "Add"})


def _operators_by_layer(
    plan: PlacementPlan, nodes: Iterable[onnx.NodeProto], layers: Mapping[str, str]
) -> dict[str, Counter[str]]:
    clips = {f"{pair.name}{NARROWING}" for pair in plan.tensors}  # the Clip of a pair with less than 8 bits
    found: dict[str, Counter[str]] = {}
    for node in nodes:
        if node.op_type in PAIR_OPERATORS or node.op_type in HELPERS or node.name in clips or keeps_in_float(node):
            continue
        layer = layer_of(node.name, layers)
        if layer is not None:
            found.setdefault(layer, Counter())[_written_for(node)] += 1
    return found


def _written_for(node: onnx.NodeProto) -> str:
    """Return the operator of the plan that a node implements."""
    name = without_running_number(node.name)
    # A Relu or Clip that was written as Max and Min is recognised at its Max.
    of = next((operator for operator, end in APART.items() if node.op_type == "Max" and name.endswith(end)), None)
    if of is not None:
        return of
    return written_for(node.op_type)


def _shown(operators: Counter[str]) -> str:
    return ", ".join(f"{count} {operator}" for operator, count in sorted(operators.items())) or "nothing"
