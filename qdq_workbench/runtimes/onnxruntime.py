"""ONNX Runtime on x86 CPUs: which layers become integer kernels.

The rules restate what its QDQ transformer (selectors and actions) does with a file that `export_onnx` writes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from qdq_workbench.graph.model_graph import Node
from qdq_workbench.graph.op_kinds import activation_name, is_activation
from qdq_workbench.placement.targets import get_target
from qdq_workbench.runtimes.explanation import Fix, LayerExplanation, Rule
from qdq_workbench.runtimes.facts import VANISHING, PlanFacts
from qdq_workbench.runtimes.judge_layers import Verdict, judge_layers

_TARGET = get_target("onnxruntime")
_CONVOLUTIONS = ("Conv1D", "Conv2D", "Conv3D", "DepthwiseConv1D", "DepthwiseConv2D")
_PRODUCTS = ("Dense", "EinsumDense")
_AVERAGES = tuple(f"{scope}AveragePooling{n}D" for scope in ("", "Global") for n in (1, 2, 3))
_BILINEAR = ("UpSampling2D",)
# QuantizeLinear moves backwards through these, DequantizeLinear forwards.
_PASSED = ("MaxPooling1D", "MaxPooling2D", "MaxPooling3D", "Flatten", "Reshape", "Permute")
_PADDING = ("ZeroPadding1D", "ZeroPadding2D", "ZeroPadding3D")


def _rule(name: str, sentence: str) -> Rule:
    return Rule(f"ORT-{name}", sentence, _TARGET.documentation, _TARGET.version)


RULES = {
    rule.id: rule
    for rule in (
        _rule("INTEGER", "Inputs, weights and output are quantized: an integer kernel runs."),
        _rule("FUSED", "The layer vanishes into the integer kernel before it."),
        _rule("VANISHES", "The layer does nothing at inference."),
        _rule("INPUT", "Every input must be quantized."),
        _rule("WEIGHT", "The weights must be quantized."),
        _rule("OWN-WEIGHT", "A float weight between quantized tensors is rounded by the runtime itself."),
        _rule("WEIGHT-ONLY", "A matrix product of floats may read integer weights; it computes in float."),
        _rule("OUTPUT", "The output must reach exactly one QuantizeLinear."),
        _rule("ACTIVATION", "Only ReLU and ReLU6 are fused; some activations have a kernel between two pairs."),
        _rule("OPERANDS", "Add and Mul have an integer kernel for two tensors."),
        _rule("SCALE", "Input and output must share one scale."),
        _rule("GRID", "Integer kernels take 8 bits; 16-bit tensors and weights are computed in float."),
        _rule("FOLD", "A BatchNormalization has no integer kernel; folded into a convolution it vanishes."),
        _rule("NO-KERNEL", "There is no integer kernel for this operation."),
    )
}
_GOOD = ("ORT-INTEGER", "ORT-FUSED", "ORT-VANISHES", "ORT-OWN-WEIGHT")


def explain_layers(facts: PlanFacts) -> Iterator[LayerExplanation]:
    """Return what ONNX Runtime does with every call of the plan.

    Args:
        facts: The plan, planned for ONNX Runtime.
    """
    return judge_layers(facts, _verdict, RULES, _GOOD, prefix="ORT-")


def _verdict(facts: PlanFacts, node: Node, integer: set[str]) -> Verdict:
    if node.is_a(*VANISHING) and not node.is_operation:
        return "VANISHES", "it does nothing at inference", []
    if node.is_a("BatchNormalization"):
        return _batch_norm(facts, node, integer)
    if is_activation(node):
        return _activation(facts, node, integer)
    wide = facts.wide_grids(node)
    if wide:
        return "GRID", f"{wide[0]!r} has more than 8 bits, for which there are no integer kernels", []
    for kinds, judge in _JUDGES:
        if node.is_a(*kinds):
            return judge(facts, node)
    reason = node.opaque or f"ONNX Runtime has no integer kernel for {node.class_name} on CPUs"
    return "NO-KERNEL", reason, []


def _batch_norm(facts: PlanFacts, node: Node, integer: set[str]) -> Verdict:
    if node.name not in facts.folded:
        return "FOLD", facts.why_not_folded(node), []
    absorber = facts.folded[node.name]
    if absorber in integer:
        return "FUSED", f"folded into {absorber!r}", []
    return "FOLD", f"folded into {absorber!r}, which runs in float", []


def _activation(facts: PlanFacts, node: Node, integer: set[str]) -> Verdict:
    name = activation_name(node)
    if name in _TARGET.integer_activations:
        return _activation_kernel(facts, node, name)
    if name not in _TARGET.fused_activations:
        return "ACTIVATION", f"{name} is computed in float; only ReLU and ReLU6 are fused", []
    producer = facts.graph.producer(node.inputs[0])
    producer_name = facts.folded.get(producer.name, producer.name)
    if (
        producer_name in integer
        and facts.behind(facts.graph.node(producer_name), _TARGET.fused_activations) == node.outputs[0]
    ):
        return "FUSED", f"computed by the integer kernel of {producer_name!r}", []
    return "ACTIVATION", "no integer kernel stands before it that could absorb it", []


def _activation_kernel(facts: PlanFacts, node: Node, name: str) -> Verdict:
    fix: list[Fix] = [{"name": node.layer, "quantize_weight": False, "quantize_output": True}]
    if facts.wide_grids(node):
        return "GRID", f"{facts.wide_grids(node)[0]!r} has more than 8 bits", []
    if facts.float_inputs(node):
        return "ACTIVATION", f"{name} has an integer kernel, but its input is not quantized", fix
    if not facts.has_one_pair(node.outputs[0]):
        return "ACTIVATION", f"{name} has an integer kernel, but its output has no pair that all readers share", fix
    return "INTEGER", f"{name} between two pairs", []


def _convolution(facts: PlanFacts, node: Node) -> Verdict:
    fix: list[Fix] = [{"name": node.layer, "quantize_input": True, "quantize_weight": True}]
    weights, inputs = facts.float_weights(node), _float_inputs(facts, node)
    tensor = facts.behind(node, _TARGET.fused_activations)
    own = activation_name(node)
    fusible = own in _TARGET.fused_activations | {"linear"}
    if weights and (inputs or not fusible or not facts.has_one_pair(tensor)):
        return "WEIGHT", f"its weight {weights[0]!r} stays in float", fix
    if weights:
        reason = f"its weight {weights[0]!r} is float in the file, and the runtime rounds it with one scale in all"
        return "OWN-WEIGHT", f"{reason}; quantize it here to keep a scale per channel", fix
    if inputs:
        return "INPUT", "its input is not quantized", fix
    if not fusible:
        reason = f"its own activation {own} cannot be fused, and the tensor before it is not visible to a pair"
        return "ACTIVATION", f"{reason}; use a separate Activation layer", []
    return _output(facts, tensor, "input, kernel and output are quantized")


def _float_inputs(facts: PlanFacts, node: Node) -> list[int]:
    """Return the inputs that arrive as floats: a DequantizeLinear moves forwards through movements of data.

    The export moves zero padding into the convolution, which then reads what the padding read.
    """
    return [index for index in facts.float_inputs(node) if not _arrives_as_integers(facts, node, index)]


def _arrives_as_integers(facts: PlanFacts, node: Node, index: int) -> bool:
    source = facts.graph.producer(node.inputs[index])
    moves = source.is_a(*_PASSED) or (source.is_a(*_PADDING) and node.is_a(*_CONVOLUTIONS))
    return moves and not _float_inputs(facts, source)


def _output(facts: PlanFacts, tensor: str, reason: str) -> Verdict:
    if facts.has_one_pair(tensor):
        return "INTEGER", reason, []
    producer = facts.graph.producer(tensor).layer
    fix = {"name": producer, "quantize_input": False, "quantize_weight": False, "quantize_output": True}
    return "OUTPUT", f"its result {tensor!r} has no Q/DQ pair that all its readers share", [fix]


def _product(facts: PlanFacts, node: Node) -> Verdict:
    """A matrix product with a kernel may return floats, which its bias and activation then follow."""
    fix: list[Fix] = [{"name": node.layer, "quantize_input": True, "quantize_weight": True}]
    if facts.float_weights(node):
        return "WEIGHT", f"its weight {facts.float_weights(node)[0]!r} stays in float", fix
    if _float_inputs(facts, node):
        return "WEIGHT-ONLY", "its input is not quantized: at best its weights are read as integers", fix
    return "INTEGER", "input and kernel are quantized; the result may be float", []


def _merge_or_pool(facts: PlanFacts, node: Node) -> Verdict:
    if node.is_a("Add", "Multiply", "Matmul") and len(node.inputs) != 2:
        return "OPERANDS", f"it has {len(node.inputs)} tensor operands, the kernel takes two", []
    inputs = _float_inputs(facts, node)
    if inputs:
        return "INPUT", f"input {inputs[0]} is not quantized", [{"name": node.layer, "quantize_output": True}]
    if node.is_a("Matmul"):
        return "INTEGER", "both operands are quantized; the result may be float", []
    return _output(facts, facts.behind(node, _TARGET.fused_activations), "inputs and output are quantized")


def _same_scale(facts: PlanFacts, node: Node) -> Verdict:
    if node.is_a(*_BILINEAR) and node.settings.get("interpolation", "nearest") != "nearest":
        return "NO-KERNEL", f"{node.settings['interpolation']} interpolation is computed in float", []
    if node.is_a(*_PASSED) and not _float_inputs(facts, node):
        return "INTEGER", "integers pass through it", []
    if facts.float_inputs(node):
        alone = facts.graph.has_one_use(node.inputs[0])
        if node.is_a(*_PASSED) and alone and facts.has_one_pair(node.outputs[0]):
            return "INTEGER", "the pair behind it moves in front of it", []
        fix = {"name": node.layer, "quantize_input": True, "quantize_weight": False}
        return "INPUT", "its input is not quantized", [fix]
    if facts.same_scale(node):
        return "INTEGER", "input and output share one scale", []
    fix = {"name": node.layer, "quantize_weight": False, "quantize_output": True}
    return "SCALE", "its output has no pair with the scale of its input", [fix]


_JUDGES: tuple[tuple[tuple[str, ...], Callable[[PlanFacts, Node], Verdict]], ...] = (
    (_CONVOLUTIONS, _convolution),
    (_PRODUCTS, _product),
    (("Add", "Multiply", "Concatenate", "Matmul", *_AVERAGES), _merge_or_pool),
    (tuple(_TARGET.same_scale_kinds), _same_scale),
)
