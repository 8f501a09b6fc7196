"""LiteRT (TensorFlow Lite): which operations get int8 or int16 kernels.

The rules follow its quantization specification. A kernel is all integer or all float: an operation runs on integers if
every input has a pair and its output, behind everything that is fused with it, has one too. Activations have one
width, 8 or 16 bits; weights have up to 8 bits, and may be integers in the file even if the kernel computes in float.
"""

from __future__ import annotations

from collections.abc import Iterator

from qdq_workbench.graph.kinds import ARITHMETIC, DIRECT_CONVOLUTIONS, MATRIX_PRODUCTS, TRANSPOSED, UPSAMPLINGS
from qdq_workbench.graph.model_graph import Node
from qdq_workbench.placement.targets import get_target
from qdq_workbench.runtimes.facts import PlanFacts
from qdq_workbench.runtimes.inner_layers import inner_products, is_transparent, operands
from qdq_workbench.runtimes.judge_layers import SPLIT_ACTIVATIONS, Verdict, judge_layers
from qdq_workbench.runtimes.verdict import Fix, LayerExplanation, Rule

_TARGET = get_target("litert")
_OPERATORS = "https://github.com/tensorflow/tensorflow/blob/master/tensorflow/lite/tools/optimize/operator_property.cc"
_WEIGHTED = (*TRANSPOSED, *DIRECT_CONVOLUTIONS, *MATRIX_PRODUCTS)
# Kernels whose output has a fixed scale, which the converter sets; they need no pair behind them.
_FIXED_OUTPUT = ("softmax", "log_softmax")
_INT16 = 16
_KERNELS = _TARGET.integer_kinds.intersection(_WEIGHTED)
_WIDTHS = (8, _INT16)
_FEW_BITS = 4
_REPEATING = (*UPSAMPLINGS, "RepeatVector")
_NO_INT16_ACTIVATIONS = ("hard_silu", "prelu", "thresholded_relu", "log_softmax")
# Kernels that read weights of two codes in a byte; the others read such weights from int8.
_PACKED = {8: (*DIRECT_CONVOLUTIONS, *MATRIX_PRODUCTS), 16: ("Conv1D", "Conv2D", *MATRIX_PRODUCTS)}


def _rule(name: str, sentence: str, documentation: str = _TARGET.documentation) -> Rule:
    return Rule(f"LITERT-{name}", sentence, documentation, _TARGET.version)


RULES = {
    rule.id: rule
    for rule in (
        _rule("INTEGER", "Inputs, weights and output are quantized: an int8 kernel runs."),
        _rule("INT16", "The same with 16-bit activations without a zero point and weights of up to 8 bits."),
        _rule("FUSED", "The layer vanishes into the int8 kernel before it."),
        _rule("FIXED", "Softmax and log softmax write a fixed scale.", _OPERATORS),
        _rule("VANISHES", "It has no operator in the file: it does nothing at inference."),
        _rule(
            "WEIGHTS",
            "Weights alone are quantized: integers in the file, which become floats once, for a float kernel. With "
            "`export_tflite(dynamic_range=True)`, convolutions and matrix products have a hybrid kernel that reads the "
            "integers and rounds its float input to 8 bits in every run.",
        ),
        _rule("GRID", "Activations have 8 bits, or all 16 bits and zero point 0; weights up to 8 and zero point 0."),
        _rule("NO-INT16", "It has no kernel for 16-bit activations, so it computes in float between two of them."),
        _rule("INPUT", "Every input must be quantized."),
        _rule("WEIGHT", "The weights must be quantized."),
        _rule("OUTPUT", "The output must be quantized: there is no kernel from integers to floats."),
        _rule(
            "ACTIVATION",
            "Only ReLU, ReLU6 and hard tanh are fused; some activations have kernels of their own.",
            _OPERATORS,
        ),
        _rule("SCALE", "Pooling, concatenation and data movement keep one scale on all sides.", _OPERATORS),
        _rule("OPERANDS", "Add, Sub and Mul have an int8 kernel for two operands."),
        _rule("NO-KERNEL", "The specification has no int8 form of this operation.", _OPERATORS),
    )
}
_GOOD = ("LITERT-INTEGER", "LITERT-INT16", "LITERT-FUSED", "LITERT-FIXED", "LITERT-VANISHES")


def explain_layers(facts: PlanFacts) -> Iterator[LayerExplanation]:
    """Yield the explanation of every call of a plan for LiteRT."""
    return judge_layers(facts, _verdict, RULES, _GOOD, prefix="LITERT-")


def _verdict(facts: PlanFacts, node: Node, integer: set[str]) -> Verdict:
    grid = _why_grid(facts, node)
    if grid:
        return "GRID", grid, []
    rule, reason, fix = _int8_verdict(facts, node, integer)
    wide = any(placement.quantizer.num_bits == _INT16 for placement in facts.activations(node))
    if wide and rule in ("INTEGER", "FIXED"):
        # Bilinear upsampling is a resize, which has an int16 kernel; repetition has none.
        repeats = node.is_a(*_REPEATING) and node.settings.get("interpolation") != "bilinear"
        if repeats or (node.is_activation and node.activation_name in _NO_INT16_ACTIVATIONS):
            return "NO-INT16", f"LiteRT has no int16 kernel of {node.class_name}", []
        if rule == "INTEGER":
            return "INT16", reason, fix
    return rule, reason, fix


def _why_grid(facts: PlanFacts, node: Node) -> str:
    """Return the reason if no kernel supports the grids of a node's tensors; else ""."""
    widths = set()
    for placement in facts.activations(node):
        grid = placement.quantizer
        widths.add(grid.num_bits)
        if grid.num_bits not in _WIDTHS:
            return f"{placement.tensor!r} has {grid.num_bits} bits; activations have 8 or 16"
        if grid.num_bits == _INT16 and not (grid.signed and grid.symmetric):
            return f"{placement.tensor!r} has 16 bits and a zero point; int16 activations have none"
    for placement in facts.weights(node):
        grid = placement.quantizer
        if grid.num_bits > min(_WIDTHS) or not (grid.signed and grid.symmetric):
            return f"{placement.tensor!r} is {grid.label}; weights have up to 8 bits and no zero point"
    return "it reads and writes 8 and 16 bits; a kernel takes one width" if len(widths) > 1 else ""


def _int8_verdict(facts: PlanFacts, node: Node, integer: set[str]) -> Verdict:
    if node.name in facts.folded:
        absorber = facts.folded[node.name]
        if absorber in integer:
            return "FUSED", f"folded into {absorber!r}", []
        return "NO-KERNEL", f"folded into {absorber!r}, which runs in float", []
    if node.is_activation:
        return _activation(facts, node, integer)
    if facts.weights(node) and len(facts.float_inputs(node)) == len(operands(node)):
        fix = [_input_fix(node)] if node.is_a(*_TARGET.integer_kinds) else []
        floats = facts.graph.tensors[node.inputs[0]].is_float
        reads = "its input is a float" if floats else "its input holds indices of rows"
        return "WEIGHTS", f"its weights are integers in the file, {reads}", fix
    if node.is_a(*_TARGET.same_scale_kinds):
        return _same_scale(facts, node)
    if node.is_a(*_TARGET.integer_kinds):
        return _integer(facts, node)
    if is_transparent(node):
        return _by_step(facts, node)
    return "NO-KERNEL", node.opaque or f"the int8 specification has no {node.class_name}", []


def _activation(facts: PlanFacts, node: Node, integer: set[str]) -> Verdict:
    name = node.activation_name
    fused = _TARGET.fused_activations
    producer = facts.graph.producer(node.inputs[0])
    absorber = facts.folded.get(producer.name, producer.name)
    if name in fused and absorber in integer and facts.behind(facts.graph.node(absorber), fused) == node.outputs[0]:
        return "FUSED", f"computed by the int8 kernel of {absorber!r}", []
    # A ReLU that no kernel absorbs has a kernel of its own, between two pairs.
    if name not in {*fused, *_TARGET.integer_activations, *_FIXED_OUTPUT}:
        return "ACTIVATION", f"{name} has no int8 kernel", []
    if facts.float_inputs(node):
        return "INPUT", "its input is not quantized", [_input_fix(node)]
    if name in _FIXED_OUTPUT:
        return "FIXED", f"{name} writes integers of a fixed scale", []
    if facts.output_pair(node) is None:
        return "OUTPUT", "its result has no Q/DQ pair", [_output_fix(node)]
    return "INTEGER", f"{name} between two pairs", []


def _same_scale(facts: PlanFacts, node: Node) -> Verdict:
    missing = facts.float_inputs(node)
    if missing:
        return "INPUT", f"input {missing[0]} is not quantized", [_input_fix(node)]
    if facts.same_scale(node):
        return "INTEGER", "inputs and output share one scale", []
    return "SCALE", "its output has no pair with the scale of its inputs", [_output_fix(node)]


def _integer(facts: PlanFacts, node: Node) -> Verdict:
    if (node.is_a(*_WEIGHTED) or is_transparent(node)) and facts.float_weights(node):
        fix = {"name": node.layer, "quantize_input": True, "quantize_weight": True}
        return "WEIGHT", f"its weight {facts.float_weights(node)[0]!r} stays in float", [fix]
    operands = facts.why_not_two_operands(node) if node.is_a(*ARITHMETIC) else None
    if operands is not None:
        return "OPERANDS", operands, []
    missing = facts.float_inputs(node)
    if missing:
        return "INPUT", f"input {missing[0]} is not quantized", [_input_fix(node)]
    own = node.activation_name
    if own not in _TARGET.fused_activations | {"linear"}:
        reason = f"its own activation {own} cannot be fused, and the tensor before it is not visible to a pair"
        return "ACTIVATION", reason, [SPLIT_ACTIVATIONS]
    tensor = facts.behind(node, _TARGET.fused_activations)
    # If all readers read it through one grid, the file has one integer tensor, as with a pair on the output.
    if facts.pair_for_all(tensor) is None and not facts.has_one_pair(tensor):
        return "OUTPUT", f"its result {tensor!r} has no Q/DQ pair", [_output_fix(facts.graph.producer(tensor))]
    return "INTEGER", f"inputs and output are quantized{_packing(facts, node)}", []


def _by_step(facts: PlanFacts, node: Node) -> Verdict:
    """Judge a layer that applies its inner layer to every step: one operator on all of them, or one per step."""
    inside = inner_products(node)
    if len(inside) != 1 or not _KERNELS.intersection(inside[0].classes):
        return "NO-KERNEL", f"the int8 specification has no {node.class_name}", []
    own = inside[0].settings.get("activation") or "linear"
    if own not in _TARGET.fused_activations | {"linear"}:
        return "ACTIVATION", f"the activation {own} of {inside[0].name!r} cannot be fused", []
    return _integer(facts, node)


def _packing(facts: PlanFacts, node: Node) -> str:
    """Return the end of the reason about the storage of weights of up to 4 bits; "" without such weights."""
    few = [placement for placement in facts.weights(node) if placement.quantizer.num_bits <= _FEW_BITS]
    if not few:
        return ""
    width = max(placement.quantizer.num_bits for placement in facts.activations(node))
    if node.is_a(*_PACKED.get(width, ())):
        return f"; the {few[0].quantizer.num_bits}-bit weights lie two in a byte"
    return f"; its kernel reads the {few[0].quantizer.num_bits}-bit weights from int8"


def _input_fix(node: Node) -> Fix:
    return {"name": node.layer, "quantize_input": True}


def _output_fix(node: Node) -> Fix:
    return {"name": node.layer, "quantize_input": False, "quantize_weight": False, "quantize_output": True}
