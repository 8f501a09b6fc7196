"""ONNX Runtime on x86 CPUs: which layers become integer kernels.

The rules restate what its QDQ transformer (selectors and actions) does with a file that `export_onnx` writes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from qdq_workbench.graph.model_graph import Node
from qdq_workbench.graph.op_kinds import activation_name, is_activation
from qdq_workbench.placement.targets import get_target
from qdq_workbench.runtimes.explanation import LayerExplanation, Rule
from qdq_workbench.runtimes.facts import VANISHING, PlanFacts

_TARGET = get_target("onnxruntime")
_VERSION = _TARGET.version
_DOC = _TARGET.documentation
_CONVOLUTIONS = ("Conv1D", "Conv2D", "Conv3D", "DepthwiseConv1D", "DepthwiseConv2D")
_TRANSPOSED = ("Conv1DTranspose", "Conv2DTranspose", "Conv3DTranspose")
_AVERAGES = tuple(f"{scope}AveragePooling{n}D" for scope in ("", "Global") for n in (1, 2, 3))

RULES = {
    rule.id: rule
    for rule in (
        Rule("ORT-INTEGER", "Inputs, weights and output are quantized: an integer kernel runs.", _DOC, _VERSION),
        Rule("ORT-FUSED", "The layer vanishes into the integer kernel before it.", _DOC, _VERSION),
        Rule("ORT-VANISHES", "The layer does nothing at inference.", _DOC, _VERSION),
        Rule("ORT-INPUT", "Every input must be quantized.", _DOC, _VERSION),
        Rule("ORT-WEIGHT", "The weights must be quantized.", _DOC, _VERSION),
        Rule(
            "ORT-OWN-WEIGHT",
            "A float weight between quantized tensors is rounded by the runtime itself.",
            _DOC,
            _VERSION,
        ),
        Rule("ORT-OUTPUT", "The output must reach exactly one QuantizeLinear.", _DOC, _VERSION),
        Rule("ORT-ACTIVATION", "Only ReLU and ReLU6 are fused into an integer kernel.", _DOC, _VERSION),
        Rule("ORT-OPERANDS", "Add and Mul have an integer kernel for two different operands.", _DOC, _VERSION),
        Rule("ORT-SCALE", "Input and output must share one scale.", _DOC, _VERSION),
        Rule("ORT-NO-KERNEL", "There is no integer kernel for this operation.", _DOC, _VERSION),
    )
}


def explain_layers(facts: PlanFacts) -> Iterator[LayerExplanation]:
    """Yield what ONNX Runtime does with every call of the plan.

    Args:
        facts: The plan, planned for ONNX Runtime.
    """
    integer: set[str] = set()
    for node in facts.graph.nodes:
        if node.class_name == "InputLayer" and not node.is_operation:
            continue
        rule, reason, fix = _verdict(facts, node, integer)
        good = rule in ("ORT-INTEGER", "ORT-FUSED", "ORT-VANISHES", "ORT-OWN-WEIGHT")
        if good:
            integer.add(node.name)
        yield LayerExplanation(
            layer=node.layer,
            class_name=node.class_name,
            status="int8" if good else "float",
            rule=rule,
            reason=reason,
            documentation=RULES[rule].documentation,
            fix=tuple(fix),
        )


def _verdict(facts: PlanFacts, node: Node, integer: set[str]) -> tuple[str, str, list[dict[str, Any]]]:
    if node.is_a(*VANISHING) and not node.is_operation:
        return "ORT-VANISHES", "it does nothing at inference", []
    if node.name in facts.folded:
        absorber = facts.folded[node.name]
        if absorber in integer:
            return "ORT-FUSED", f"folded into {absorber!r}", []
        return "ORT-NO-KERNEL", f"folded into {absorber!r}, which runs in float", []
    if is_activation(node):
        return _activation(facts, node, integer)
    if node.is_a(*_CONVOLUTIONS, "Dense"):
        return _weighted(facts, node)
    if node.is_a("Add", "Multiply", "Concatenate", "Matmul", *_AVERAGES):
        return _merge_or_pool(facts, node)
    if node.is_a(*_TARGET.same_scale_kinds):
        return _same_scale(facts, node)
    reason = node.opaque or f"ONNX Runtime has no integer kernel for {node.class_name} on CPUs"
    return "ORT-NO-KERNEL", reason, []


def _activation(facts: PlanFacts, node: Node, integer: set[str]) -> tuple[str, str, list[dict[str, Any]]]:
    name = activation_name(node)
    if name not in _TARGET.fused_activations:
        return "ORT-ACTIVATION", f"{name} is computed in float; only ReLU and ReLU6 are fused", []
    producer = facts.graph.producer(node.inputs[0])
    producer_name = facts.folded.get(producer.name, producer.name)
    if (
        producer_name in integer
        and facts.behind(facts.graph.node(producer_name), _TARGET.fused_activations) == node.outputs[0]
    ):
        return "ORT-FUSED", f"computed by the integer kernel of {producer_name!r}", []
    return "ORT-ACTIVATION", "no integer kernel stands before it that could absorb it", []


def _weighted(facts: PlanFacts, node: Node) -> tuple[str, str, list[dict[str, Any]]]:
    fix = [{"name": node.layer, "quantize_input": True, "quantize_weight": True}]
    weights, inputs = facts.float_weights(node), facts.float_inputs(node)
    if weights and not _rounds_weight_itself(facts, node, inputs):
        return "ORT-WEIGHT", f"its weight {weights[0]!r} stays in float", fix
    if weights:
        reason = f"its weight {weights[0]!r} is float in the file, and the runtime rounds it with one scale in all"
        return "ORT-OWN-WEIGHT", f"{reason}; quantize it here to keep a scale per channel", fix
    if inputs:
        return "ORT-INPUT", "its input is not quantized", fix
    if node.is_a("Dense"):
        return "ORT-INTEGER", "input and kernel are quantized; the result may be float", []
    own = activation_name(node)
    if own not in _TARGET.fused_activations | {"linear"}:
        reason = f"its own activation {own} cannot be fused, and the tensor before it is not visible to a pair"
        return "ORT-ACTIVATION", f"{reason}; use a separate Activation layer", []
    tensor = facts.behind(node, _TARGET.fused_activations)
    if facts.plan.output_placement(tensor) is None:
        producer = facts.graph.producer(tensor).layer
        output_fix = [{"name": producer, "quantize_input": False, "quantize_weight": False, "quantize_output": True}]
        return "ORT-OUTPUT", f"its result {tensor!r} has no Q/DQ pair that all its readers share", output_fix
    return "ORT-INTEGER", "input, kernel and output are quantized", []


def _rounds_weight_itself(facts: PlanFacts, node: Node, float_inputs: list[int]) -> bool:
    """A convolution between quantized tensors gets integer weights in any case."""
    if float_inputs or node.is_a("Dense"):
        return False
    if activation_name(node) not in _TARGET.fused_activations | {"linear"}:
        return False
    return facts.plan.output_placement(facts.behind(node, _TARGET.fused_activations)) is not None


def _merge_or_pool(facts: PlanFacts, node: Node) -> tuple[str, str, list[dict[str, Any]]]:
    fix = [{"name": node.layer, "quantize_output": True}]
    if node.is_a("Add", "Multiply", "Matmul") and len(set(node.inputs)) != 2:
        return "ORT-OPERANDS", f"it has {len(set(node.inputs))} different tensor operands, the kernel takes two", []
    inputs = facts.float_inputs(node)
    if inputs:
        return "ORT-INPUT", f"input {inputs[0]} is not quantized", fix
    if node.is_a("Matmul"):
        return "ORT-INTEGER", "both operands are quantized; the result may be float", []
    tensor = facts.behind(node, _TARGET.fused_activations)
    if facts.plan.output_placement(tensor) is None:
        return "ORT-OUTPUT", f"its result {tensor!r} has no Q/DQ pair that all its readers share", fix
    return "ORT-INTEGER", "inputs and output are quantized", []


def _same_scale(facts: PlanFacts, node: Node) -> tuple[str, str, list[dict[str, Any]]]:
    if facts.float_inputs(node):
        fix = [{"name": node.layer, "quantize_input": True, "quantize_weight": False}]
        return "ORT-INPUT", "its input is not quantized", fix
    if facts.same_scale(node):
        return "ORT-INTEGER", "input and output share one scale", []
    return "ORT-SCALE", "its output has no pair with the scale of its input", []
