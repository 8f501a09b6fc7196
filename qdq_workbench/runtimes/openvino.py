"""OpenVINO on CPUs: which layers run on integers.

The rules were derived from the precisions in the runtime's own execution graph. Operations that read quantized tensors
run on integers; operations directly behind an integer kernel are fused into it.

What subtracts the zero point of its input does so in float32, after a conversion. Convolutions, Dense, pooling and data
movement need not; which operands of the others must have the zero point 0 is what `_why_zero_point` says.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from qdq_workbench.graph.kinds import (
    ADDITIONS,
    ARITHMETIC,
    BATCH_NORMALIZATION,
    POOLINGS,
    RESHAPINGS,
    TRANSPOSED,
)
from qdq_workbench.graph.model_graph import Node
from qdq_workbench.graph.never_negative import is_gate
from qdq_workbench.graph.op_kinds import is_product
from qdq_workbench.placement.targets import get_target
from qdq_workbench.runtimes.facts import PlanFacts
from qdq_workbench.runtimes.few_bits import why_packed
from qdq_workbench.runtimes.fixed_ranges import fixed_ends, steps_below_zero
from qdq_workbench.runtimes.grids import why_grid
from qdq_workbench.runtimes.inner_layers import computes_several, inner_products, is_transparent
from qdq_workbench.runtimes.judge_layers import Verdict, judge_layers
from qdq_workbench.runtimes.verdict import Fix, LayerExplanation, Rule
from qdq_workbench.spec.quantizer_spec import QuantizerSpec

_TARGET = get_target("openvino")
_FUSED = frozenset({"relu", "relu6", "clipped_relu", "leaky_relu", "sigmoid", "silu", "hard_silu", "tanh", "elu"})
_MOVES = (*RESHAPINGS, "UpSampling2D", "Concatenate", "ZeroPadding2D", "Cropping2D")


def _rule(name: str, sentence: str) -> Rule:
    return Rule(f"OV-{name}", sentence, _TARGET.documentation, _TARGET.version)


RULES = {
    rule.id: rule
    for rule in (
        _rule("GEMM", "A convolution or matrix product with quantized input and weights runs on integers."),
        _rule("FUSED", "The layer is computed inside the integer kernel before it."),
        _rule("POOL", "Pooling of a quantized tensor runs on integers; a pair behind it alone does not help."),
        _rule("MOVES", "Data movement keeps the integers of quantized inputs."),
        _rule("ELEMENTWISE", "An elementwise operation reads and writes integers between pairs."),
        _rule("VANISHES", "It has no operator in the file: it does nothing at inference, or its reader pads."),
        _rule(
            "BLOCKS",
            "A matrix product reads weights in blocks as they are and computes in floating point, or on its own int8 "
            "rounding of the input where the runtime chooses that (DYNAMIC_QUANTIZATION_GROUP_SIZE).",
        ),
        _rule(
            "GRID",
            "Quantized inputs have up to 8 bits; weights have up to 8 and zero point 0, and are not INT4, as opset 21 "
            "stores 2 to 4 bits: those are dequantized.",
        ),
        _rule("INPUT", "Every input must be quantized."),
        _rule("WEIGHT", "The weights must be quantized, symmetric, with one scale in all or one per output channel."),
        _rule(
            "ZERO-POINT",
            "Transposed convolutions, activations between pairs and operations with a constant run on integers when "
            "the zero point of their input is 0, a product of tensors when that of one operand is. A matrix product of "
            "tensors needs the zero point 0 in both, and the second one symmetric.",
        ),
        _rule(
            "CONSTANT", "A constant with several values is added in float, except one per channel, or to int8 tensors."
        ),
        _rule("OUTPUT", "An elementwise operation writes floats unless its output is quantized."),
        _rule("NO-KERNEL", "There is no integer form of this operation."),
    )
}
_GOOD = ("OV-GEMM", "OV-FUSED", "OV-POOL", "OV-MOVES", "OV-ELEMENTWISE", "OV-VANISHES")


def explain_layers(facts: PlanFacts) -> Iterator[LayerExplanation]:
    """Yield the explanation of every call of a plan for OpenVINO."""
    # Pooling and data movement run on integers, but nothing is fused into them.
    return judge_layers(facts, _verdict, RULES, _GOOD, prefix="OV-", absorbing=("OV-GEMM", "OV-FUSED"))


def _verdict(facts: PlanFacts, node: Node, integer: set[str]) -> Verdict:
    absorber = _absorber(facts, node, integer)
    if absorber is not None:
        return "FUSED", f"computed inside the integer kernel of {absorber!r}", []
    if facts.blocks(node) is not None:
        return "BLOCKS", "its weights alone are integers", []
    rule, reason, fix = _judged(facts, node)
    packed = why_packed(facts, node)
    if packed is not None and rule == "GEMM":
        return packed
    grid, remedy = ("", ()) if rule == "NO-KERNEL" else _why_grid(facts, node)
    return ("GRID", grid, remedy) if grid else (rule, reason, fix)


def _judged(facts: PlanFacts, node: Node) -> Verdict:
    """Return the verdict on a node by itself, whatever its grids."""
    if is_product(node):
        return _weighted(facts, node)
    # Not Maximum and Minimum: the plugin computes them in float, with pairs on both sides too.
    if node.is_a(*ARITHMETIC) or _computes(node) in _FUSED:
        return _elementwise(facts, node)
    if node.is_a("Matmul"):
        # First what no pair changes.
        why = _why_zero_point(facts, node)
        return ("ZERO-POINT", why, []) if why else _needs_inputs(facts, node, "GEMM", "both operands are quantized")
    for rule, reason, kinds in _READERS:
        if node.is_a(*kinds):
            return _needs_inputs(facts, node, rule, reason)
    if is_transparent(node) and inner_products(node) and not computes_several(inner_products(node)):
        return _weighted(facts, node)
    return "NO-KERNEL", node.opaque or f"OpenVINO computes {node.class_name} in floating point", []


def _why_grid(facts: PlanFacts, node: Node) -> tuple[str, tuple[str, ...]]:
    """Return a reason and a remedy if no kernel takes a grid that a node reads; what it writes may be float."""
    reads = [facts.input_pair(node, index) for index in range(len(node.inputs))]
    found = why_grid(filter(None, reads), "OpenVINO", without_zero_points=False)
    return found if found[0] else why_grid(facts.weights(node), "OpenVINO", without_zero_points=True)


_READERS = (
    ("POOL", "it pools integers", POOLINGS),
    ("MOVES", "it moves integers", _MOVES),
)


def _computes(node: Node) -> str:
    return node.activation_name if node.is_activation else ""


def _elementwise(facts: PlanFacts, node: Node) -> Verdict:
    fix: list[Fix] = [{"name": node.layer, "quantize_weight": False, "quantize_output": True}]
    missing, zero_point = facts.float_inputs(node), _why_zero_point(facts, node)
    # First what no pair changes.
    if zero_point:
        return "ZERO-POINT", zero_point, []
    if _adds_values(facts, node):
        return "CONSTANT", "it adds a constant that differs from place to place", []
    if missing:
        return "INPUT", f"input {missing[0]} is not quantized", fix
    if facts.is_paired_in_file(node.outputs[0]):
        return "ELEMENTWISE", "it reads and writes integers", []
    return "OUTPUT", "its output has no pair", fix


def _absorber(facts: PlanFacts, node: Node, integer: set[str]) -> str | None:
    """Return the call whose integer kernel absorbs a node behind it, if there is one."""
    # A sum becomes a post-operation of the convolution that makes one of its operands.
    if not (node.is_a(*BATCH_NORMALIZATION, "Add") or _computes(node) in _FUSED):
        return None
    before = map(facts.kernel_before, node.inputs)
    return next((kernel for kernel in before if kernel in integer), None)


def _weighted(facts: PlanFacts, node: Node) -> Verdict:
    fix: list[Fix] = [{"name": node.layer, "quantize_input": True, "quantize_weight": True}]
    if facts.float_weights(node):
        return "WEIGHT", f"its weight {facts.float_weights(node)[0]!r} stays in float", fix
    if facts.float_inputs(node):
        return "INPUT", "its input is not quantized", fix
    zero_point = _why_zero_point(facts, node) if node.is_a(*TRANSPOSED) else ""
    if zero_point:
        return "ZERO-POINT", zero_point, []
    return "GEMM", "input and weights are quantized", []


def _why_zero_point(facts: PlanFacts, node: Node) -> str:
    """Return why the zero points of its inputs keep an operation on quantized tensors in float; "" if they do not."""
    found = [_has_zero_point_0(facts, node, index) for index in range(len(node.inputs))]
    if node.is_a("Matmul"):
        return "" if found[0] and _is_symmetric(facts, node, -1) else _why_matrix(found[0])
    if len(found) == 1:
        return "" if found[0] else "its input has a zero point, because it may be negative or by its settings"
    # A product subtracts the zero point of one operand in front of it, and reads the integers of the other. Of three
    # the first two are one product. Not told here: with two zero points it still reads integers, and subtracts itself,
    # where other readers need them; and with one it may choose the wrong operand behind pools that read floats.
    return "both operands have a zero point" if node.is_a("Multiply") and not any(found[:2]) else ""


def _why_matrix(first: bool) -> str:
    which = "second operand is not symmetric" if first else "first operand has a zero point"
    return f"its {which}; with {{'signed': True, 'symmetric': True}} for both it runs on integers"


def _grid(facts: PlanFacts, node: Node, index: int) -> QuantizerSpec:
    """Return the grid of an input; without a pair, the one that a pair would have."""
    placement = facts.input_pair(node, index)
    return _TARGET.activation if placement is None else placement.quantizer


def _is_symmetric(facts: PlanFacts, node: Node, index: int) -> bool:
    return _grid(facts, node, range(len(node.inputs))[index]).symmetric


def _has_zero_point_0(facts: PlanFacts, node: Node, index: int) -> bool:
    """Return whether the zero point of an input is 0, whatever the data."""
    grid = _grid(facts, node, index)
    if grid.signed or grid.symmetric:
        return grid.signed and grid.symmetric
    placement, owners = facts.input_pair(node, index), facts.plan.range_owners
    ends = None if placement is None else fixed_ends(placement.method)
    if ends is not None:
        return grid.qmin + steps_below_zero(grid, ends) == 0
    # The range must start at 0: no tensor that shares it may be negative.
    sharing = [node.inputs[index]]
    if placement is not None:
        owner = owners[facts.plan.pair_of(placement).name]
        sharing = [pair.tensor for pair in facts.plan.tensors if owners.get(pair.name) == owner]
    return grid.qmin == 0 and all(is_gate(facts.graph, tensor) for tensor in sharing)


def _adds_values(facts: PlanFacts, node: Node) -> bool:
    """Return whether a node adds a constant of several values that does not become a part of a pair."""
    if len(node.inputs) != 1 or not node.is_a(*ADDITIONS) or _grid(facts, node, 0).signed:
        return False
    # One value, or one per channel, becomes a part of the pair behind it; the channels are the first axis behind the
    # batch in the file, as of images and of rows. Not told here: unsigned integers take any constant that makes
    # nothing larger, which depends on its values.
    constant, rank = node.settings.get("constant_shape") or [], len(facts.graph.tensors[node.inputs[0]].shape)
    return math.prod(constant) > (constant[-1] if constant and rank != 3 else 1)


def _needs_inputs(facts: PlanFacts, node: Node, rule: str, reason: str) -> Verdict:
    missing = facts.float_inputs(node)
    if missing and node.is_a("Concatenate") and _only_read_quantized(facts, node):
        return "MOVES", "the pair behind it moves in front of its branches", []
    if missing:
        return "INPUT", f"input {missing[0]} is not quantized", [{"name": node.layer, "quantize_weight": False}]
    return rule, reason, []


def _only_read_quantized(facts: PlanFacts, node: Node) -> bool:
    tensor = node.outputs[0]
    readers = facts.graph.readers(tensor)
    quantized = all(facts.plan.input_placement(reader.name, index) is not None for reader, index in readers)
    return bool(readers) and quantized and tensor not in facts.graph.outputs
