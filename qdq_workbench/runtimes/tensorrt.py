"""TensorRT with explicit quantization: which layers run in INT8.

The rules restate the placement recommendations of its documentation; they were not run against a GPU here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from qdq_workbench.graph.kinds import ELEMENTWISE_OPERATORS, MAXIMA, RESHAPINGS
from qdq_workbench.graph.model_graph import Node
from qdq_workbench.graph.op_kinds import (
    ends_in_convolution,
    is_product,
    producer_in_file,
)
from qdq_workbench.placement.targets import get_target
from qdq_workbench.runtimes.facts import PlanFacts
from qdq_workbench.runtimes.few_bits import why_packed
from qdq_workbench.runtimes.grids import why_grid
from qdq_workbench.runtimes.inner_layers import (
    computes_several,
    inner_products,
    is_recurrent,
    is_transparent,
    why_no_pair_inside,
)
from qdq_workbench.runtimes.judge_layers import Verdict, judge_layers
from qdq_workbench.runtimes.verdict import LayerExplanation, Rule

_TARGET = get_target("tensorrt")
_DOC, _VERSION = _TARGET.documentation, _TARGET.version
_OPERATORS = "https://github.com/onnx/onnx-tensorrt/blob/main/docs/operators.md"
_FUSED = frozenset({"relu", "relu6", "clipped_relu", "leaky_relu", "sigmoid", "silu", "tanh"})
_BOTH_SIDES = {"quantize_weight": False, "quantize_output": True}
_COMMUTING = (*MAXIMA, *RESHAPINGS)

RULES = {
    rule.id: rule
    for rule in (
        Rule(
            "TRT-GEMM", "A convolution or matrix product whose inputs are all quantized runs in INT8.", _DOC, _VERSION
        ),
        Rule("TRT-INPUT", "Every input of a convolution or matrix product must be quantized.", _DOC, _VERSION),
        Rule(
            "TRT-GRID",
            "Its parser refuses zero points other than 0 and has no 16-bit type; it reads uint8 as int8.",
            _OPERATORS,
            _VERSION,
        ),
        Rule(
            "TRT-INT4",
            "INT4 weights, as opset 21 stores 2 to 4 bits, are dequantized: a matrix product with them computes in "
            "floating point, and a convolution has no kernel for them.",
            _OPERATORS,
            _VERSION,
        ),
        Rule("TRT-FUSED", "The layer is fused into the INT8 kernel before it.", _DOC, _VERSION),
        Rule("TRT-SKIP", "An Add is fused into a convolution when its other operand is quantized.", _DOC, _VERSION),
        Rule("TRT-COMMUTES", "Q/DQ pairs move through the layer: it runs in the precision around it.", _DOC, _VERSION),
        Rule(
            "TRT-BOTH-SIDES", "Other layers run in INT8 with quantized inputs and a quantized output.", _DOC, _VERSION
        ),
        Rule("TRT-OPERANDS", "It has two operands, both quantized; a constant in float is not.", _DOC, _VERSION),
        Rule(
            "TRT-INSIDE",
            "No Q/DQ pair can be placed inside a layer, so of several products in it not all have quantized inputs.",
            _DOC,
            _VERSION,
        ),
        Rule(
            "TRT-RECURRENT",
            "LSTM, GRU, RNN and Loop nodes are imported in FP32 or FP16; they have no INT8 kernel.",
            _OPERATORS,
            _VERSION,
        ),
        Rule(
            "TRT-VANISHES",
            "It has no operator in the file: it does nothing at inference, or its reader pads.",
            _DOC,
            _VERSION,
        ),
        Rule(
            "TRT-BLOCKS",
            "4-bit weights in blocks are dequantized inside the matrix product, which computes in floating point.",
            _DOC,
            _VERSION,
        ),
        Rule("TRT-FLOAT", "Nothing around the layer asks for INT8.", _DOC, _VERSION),
    )
}
_FLOAT_PARTS = (
    "TensorRT 10.x computes float parts in FP16 where the builder is told so (BuilderFlag.FP16, trtexec --fp16; "
    "deprecated since 10.12); TensorRT 11 has no such flag: its networks are strongly typed, so what the file holds in "
    "float32 runs in float32"
)
_GOOD = ("TRT-GEMM", "TRT-FUSED", "TRT-SKIP", "TRT-COMMUTES", "TRT-BOTH-SIDES", "TRT-VANISHES")
_RECURRENT_IS_FLOAT = (
    "recurrent layers are computed in floating point, behind DequantizeLinear: their integers make the file smaller, "
    f"not the engine faster; {_FLOAT_PARTS}"
)


def explain_layers(facts: PlanFacts) -> Iterator[LayerExplanation]:
    """Yield the explanation of every call of a plan for TensorRT."""
    return judge_layers(facts, _verdict, RULES, _GOOD)


def _verdict(facts: PlanFacts, node: Node, integer: set[str]) -> Verdict:
    # First, because such a tensor keeps the parser from reading the file, or gets other values.
    grid, remedy = why_grid((*facts.activations(node), *facts.weights(node)), "TensorRT", without_zero_points=True)
    if grid:
        return "TRT-GRID", grid, remedy
    absorber = _absorber(facts, node, integer)
    if absorber:
        return "TRT-FUSED", f"fused into the kernel of {absorber!r}", []
    if facts.blocks(node) is not None:
        return "TRT-BLOCKS", f"its weights alone are integers; {_FLOAT_PARTS}", []
    verdict: Verdict = node.once(_judge_of)(facts, node, integer)
    packed = why_packed(facts, node)
    return verdict if packed is None or verdict[0] != "TRT-GEMM" else ("TRT-INT4", *packed[1:])


def _judge_of(node: Node) -> Callable[[PlanFacts, Node, set[str]], Verdict]:
    """Return the judge of a call that no kernel absorbs, which depends on its class alone."""
    if is_product(node):
        return _gemm
    # Before the layers that hold one, because a TimeDistributed may hold a recurrent layer.
    if is_recurrent(node):
        return _recurrent
    if is_transparent(node) and inner_products(node):
        return _held
    for kinds, judge in ((("Matmul",), _product), (("Add",), _add), (_COMMUTING, _moves)):
        if node.is_a(*kinds):
            return judge
    return _other


def _absorber(facts: PlanFacts, node: Node, integer: set[str]) -> str:
    """Return the call whose kernel absorbs a normalization, a constant or an activation behind it; "" for none."""
    # First what is folded in the file, then what the builder fuses.
    merged = facts.plan.lowering.merged.into.get(node.name, "")
    if merged in integer:
        return merged
    if not node.once(_is_fusible):
        return ""
    kernel = facts.kernel_before(node.inputs[0])
    return kernel if kernel in integer else ""


def _is_fusible(node: Node) -> bool:
    """Return whether a kernel may absorb a call: a normalization, or an activation that TensorRT fuses."""
    fused = node.is_a("BatchNormalization") or (node.is_activation and node.activation_name in _FUSED)
    return bool(node.inputs) and fused


def _recurrent(facts: PlanFacts, node: Node, integer: set[str]) -> Verdict:  # noqa: ARG001 - as the others
    return "TRT-RECURRENT", _RECURRENT_IS_FLOAT, []


def _moves(facts: PlanFacts, node: Node, integer: set[str]) -> Verdict:
    producer = producer_in_file(facts.graph, node.inputs[0])
    # A pair behind the layer moves in front of it, and there into the integer kernel.
    if not facts.float_inputs(node) or (producer.name in integer and facts.is_paired_in_file(node.outputs[0])):
        return "TRT-COMMUTES", "the pair moves through it", []
    return "TRT-FLOAT", "neither its input nor its output is quantized", _input_fix(node)


def _other(facts: PlanFacts, node: Node, integer: set[str]) -> Verdict:  # noqa: ARG001 - as the others
    operands = facts.why_not_two_operands(node) if node.is_a(*ELEMENTWISE_OPERATORS) else None
    if operands is not None:
        return "TRT-OPERANDS", operands, []
    quantized = not facts.float_inputs(node) and bool(node.inputs)
    read = [name for name in node.outputs if facts.graph.readers(name) or name in facts.graph.outputs]
    if quantized and all(map(facts.is_paired_in_file, read)):
        return "TRT-BOTH-SIDES", "inputs and output are quantized", []
    missing = "its output has no pair" if quantized else "its inputs are not all quantized"
    fix = [] if node.opaque else [{"name": node.layer, "quantize_output": True}]
    return "TRT-FLOAT", node.opaque or missing, fix


def _gemm(facts: PlanFacts, node: Node, integer: set[str]) -> Verdict:  # noqa: ARG001 - as the others
    fix = [{"name": node.layer, "quantize_input": True, "quantize_weight": True}]
    if facts.float_weights(node):
        return "TRT-INPUT", f"its weight {facts.float_weights(node)[0]!r} stays in float", fix
    if facts.float_inputs(node):
        return "TRT-INPUT", "its input is not quantized", fix
    return "TRT-GEMM", "input and weights are quantized", []


def _held(facts: PlanFacts, node: Node, integer: set[str]) -> Verdict:
    """Judge `TimeDistributed` and similar layers: the file has the inner layer once, for all steps together."""
    products = inner_products(node)
    if computes_several(products):
        advice = f"give each of its convolutions and products a {node.class_name} of its own"
        return "TRT-INSIDE", why_no_pair_inside(products), [advice]
    rule, reason, fix = _gemm(facts, node, integer)
    return rule, f"the {products[0].class_name} inside: {reason}", fix


def _product(facts: PlanFacts, node: Node, integer: set[str]) -> Verdict:  # noqa: ARG001 - as the others
    missing = facts.float_inputs(node)
    if not missing and len(node.inputs) > 1:
        return "TRT-GEMM", "both operands are quantized", []
    if len(node.inputs) < 2:
        return "TRT-INPUT", "one of its operands is a constant in float", []
    return "TRT-INPUT", f"inputs {missing} are not quantized", _input_fix(node)


def _add(facts: PlanFacts, node: Node, integer: set[str]) -> Verdict:  # noqa: ARG001 - as the others
    # A constant that the file folds into a bias needs no pair, but its kernel is one of floats here.
    operands = facts.why_not_two_operands(node) if node.name not in facts.added else None
    if operands is not None:
        return "TRT-OPERANDS", operands, []
    missing = facts.float_inputs(node)
    # A pair on the convolution's result would separate its kernel from the Add, so that operand must have none.
    if len(missing) == 1 and len(node.inputs) > 1 and ends_in_convolution(facts.graph, node.inputs[missing[0]]):
        return "TRT-SKIP", f"added inside the convolution that makes input {missing[0]}", []
    if not missing and facts.is_paired_in_file(node.outputs[0]):
        return "TRT-BOTH-SIDES", "inputs and output are quantized; the Add runs as a kernel of its own", []
    convolution = next((i for i in range(len(node.inputs)) if ends_in_convolution(facts.graph, node.inputs[i])), None)
    indices = [i for i in range(len(node.inputs)) if i != convolution]
    fix = [{"name": node.layer, "quantize_weight": False, "quantization_index": indices}] if indices else []
    if not missing:
        return "TRT-FLOAT", "its inputs are quantized and its output is not", [{"name": node.layer, **_BOTH_SIDES}]
    if convolution is None:
        fix = [{"name": node.layer, "quantize_weight": False, "quantize_output": True}]
    return "TRT-FLOAT", f"inputs {missing} are not quantized, so the sum is computed in float", fix


def _input_fix(node: Node) -> list[dict[str, Any]]:
    return [{"name": node.layer, "quantize_input": True, "quantize_weight": False}]
