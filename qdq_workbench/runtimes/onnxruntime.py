"""ONNX Runtime on x86 CPUs: which layers become integer kernels.

The rules describe how its QDQ transformer (selectors and actions) handles a file that `export_onnx` writes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from qdq_workbench.graph.block_axes import block_in_file
from qdq_workbench.graph.kinds import ADDITIONS, DIRECT_CONVOLUTIONS, MATRIX_PRODUCTS, MAXIMA, PADDINGS, TENSOR_PRODUCTS
from qdq_workbench.graph.model_graph import Node
from qdq_workbench.graph.op_kinds import multiplies_with_table
from qdq_workbench.placement.placement import Placement
from qdq_workbench.placement.targets import get_target
from qdq_workbench.placement.wrong_kernels import is_softmax_of_one
from qdq_workbench.runtimes.clipped_products import (
    clipped_in_activation,
    clipped_result,
    float_behind_clip,
    partly_quantized_result,
)
from qdq_workbench.runtimes.facts import PlanFacts
from qdq_workbench.runtimes.few_bits import why_clipped, why_no_shared_pair, why_packed
from qdq_workbench.runtimes.held_products import judge_held
from qdq_workbench.runtimes.inner_layers import (
    computes_several,
    held_product,
    inner_products,
    is_transparent,
    levels_of_steps,
    multiplies_matrices,
    own_activation,
    stands_alone,
    why_no_pair_inside,
)
from qdq_workbench.runtimes.judge_layers import SPLIT_ACTIVATIONS, Verdict, judge_layers
from qdq_workbench.runtimes.propagation import PASSED, propagation_of
from qdq_workbench.runtimes.remaining_clips import why_remains
from qdq_workbench.runtimes.verdict import Fix, LayerExplanation, Rule

_TARGET = get_target("onnxruntime")
_BILINEAR = ("UpSampling2D",)
_SHORTEST_BLOCK, _PACKED_BITS = 16, 4  # of MatMulNBits


def _rule(name: str, sentence: str) -> Rule:
    return Rule(f"ORT-{name}", sentence, _TARGET.documentation, _TARGET.version)


RULES = {
    rule.id: rule
    for rule in (
        _rule("INTEGER", "Inputs, weights and output are quantized: an integer kernel runs."),
        _rule("FUSED", "The layer vanishes into the integer kernel before it."),
        _rule("VANISHES", "It has no operator in the file: it does nothing at inference, or its reader pads."),
        _rule("INPUT", "Every input must be quantized."),
        _rule("WEIGHT", "The weights must be quantized."),
        _rule("WEIGHT-ONLY", "A matrix product of floats may read integer weights; it computes in float."),
        _rule(
            "BLOCKS",
            "MatMulNBits reads the weights of a matrix product of floats in their blocks, and by default rounds its "
            "input to int8 as it goes (session.qdq_matmulnbits_accuracy_level).",
        ),
        _rule("BLOCKS-INPUT", "Weights in blocks have a kernel for float inputs only."),
        _rule("BLOCKS-SHARED", "That kernel takes weights that only one matrix product reads."),
        _rule("BLOCKS-SIZE", "That kernel takes blocks of 16 values times a power of two: 16, 32, 64, ..."),
        _rule("OUTPUT", "The output must reach exactly one QuantizeLinear."),
        _rule(
            "ACTIVATION",
            "Only ReLU (up to any maximum) is fused; some activations have a kernel between pairs.",
        ),
        _rule("OPERANDS", "Add and Mul have an integer kernel for two tensors."),
        _rule("SCALE", "Input and output must share one scale."),
        _rule(
            "GRID",
            "Integer kernels take 8 bits; 16-bit tensors and weights are computed in float, and so are INT4 weights, "
            "which files have from opset 21 on.",
        ),
        _rule(
            "CLIP",
            "No integer kernel is formed in front of the Clip to a grid that leaves out values of its integer type: "
            "of fewer than 8 bits, or narrow.",
        ),
        _rule(
            "RELU",
            "A ReLU is computed in float, and what is in front of it too, unless its pair makes it unnecessary: 0 is "
            "the lowest integer, and no integer stands for more than its maximum.",
        ),
        _rule(
            "FOLD",
            "A BatchNormalization or the addition of a constant has no integer kernel; folded it vanishes.",
        ),
        _rule("NO-KERNEL", "There is no integer kernel for this operation."),
        _rule("OPAQUE", "What happens inside a layer is not planned: it counts as float, whatever kernels it gets."),
    )
}
_ABSORBING = ("ORT-INTEGER", "ORT-FUSED", "ORT-VANISHES")
_GOOD = (*_ABSORBING, "ORT-BLOCKS")  # the kernel for blocks absorbs nothing behind it


def explain_layers(facts: PlanFacts) -> Iterator[LayerExplanation]:
    """Yield the explanation of every call of a plan for ONNX Runtime."""
    return judge_layers(facts, _verdict, RULES, _GOOD, prefix="ORT-", absorbing=_ABSORBING)


def _verdict(facts: PlanFacts, node: Node, integer: set[str]) -> Verdict:
    found = _judged(facts, node, integer)
    wide = _wide_behind(facts, node) if found[0] == "INTEGER" else None
    return found if wide is None else ("GRID", f"{wide!r} has more than 8 bits", [])


def _wide_behind(facts: PlanFacts, node: Node) -> str | None:
    """Return the tensor that a kernel would write on a grid of more than 8 bits, a ReLU behind it absorbed, or None."""
    if node.is_a(*MAXIMA):
        return None  # its pair is that of its input, whatever stands behind
    if not node.is_activation and own_activation(node) not in _TARGET.fused_activations | {"linear"}:
        return None  # it writes floats, which the activation reads
    tensor = _behind(facts, node)
    reads = [facts.plan.output_placement(tensor)]
    reads += [facts.input_pair(reader, index) for reader, index in facts.graph.readers(tensor)]
    return tensor if any(found is not None and found.quantizer.num_bits > 8 for found in reads) else None


def _judged(facts: PlanFacts, node: Node, integer: set[str]) -> Verdict:
    if node.is_a("BatchNormalization"):
        return _batch_norm(facts, node, integer)
    if node.name in facts.added:
        return _folded(facts.added[node.name], integer)
    if node.is_activation:
        return _activation(facts, node, integer)
    # Only now: what is merged or fused has no kernel of its own, and follows the verdict on that of its layer.
    wide = facts.wide_grids(node)
    if wide:
        return "GRID", f"{wide[0]!r} has more than 8 bits, for which there are no integer kernels", []
    for kinds, judge in _JUDGES:
        if node.is_a(*kinds):
            return judge(facts, node)
    if multiplies_with_table(node) or _holds_blocks(facts, node):
        return _product(facts, node)
    return _holder(facts, node)


def _holder(facts: PlanFacts, node: Node) -> Verdict:
    """Judge a layer whose class has no rule: by what it holds, if that is one convolution or product alone."""
    held = held_product(node)
    if held is not None and stands_alone(facts.graph, node):
        return _product(facts, node)
    if held is not None:
        return judge_held(facts, node, held)
    if node.opaque:
        return "OPAQUE", node.opaque, []
    if is_transparent(node) and inner_products(node):
        return "OPAQUE", why_no_pair_inside(inner_products(node)), []
    return "NO-KERNEL", f"ONNX Runtime has no integer kernel for {node.class_name} on CPUs", []


def _holds_blocks(facts: PlanFacts, node: Node) -> bool:
    """Return whether a layer does no more than hold a matrix product with weights in blocks."""
    return facts.blocks(node) is not None and is_transparent(node) and not computes_several(inner_products(node))


def _batch_norm(facts: PlanFacts, node: Node, integer: set[str]) -> Verdict:
    if node.name not in facts.folded:
        return "FOLD", facts.why_not_folded(node), []
    return _folded(facts.folded[node.name], integer)


def _folded(absorber: str, integer: set[str]) -> Verdict:
    if absorber in integer:
        return "FUSED", f"folded into {absorber!r}", []
    return "FOLD", f"folded into {absorber!r}, which runs in float", []


def _activation(facts: PlanFacts, node: Node, integer: set[str]) -> Verdict:
    name = node.activation_name
    if name in _TARGET.integer_activations:
        return _activation_kernel(facts, node, name)
    if name not in _TARGET.fused_activations:
        return "ACTIVATION", f"{name} is computed in float; only ReLU is fused", []
    producer = facts.absorber(facts.graph.producer(node.inputs[0]))
    # A product and a ReLU become one kernel only with a pair behind them, and no float bias between.
    paired = propagation_of(facts).pair_behind(node.outputs[0]) is not None
    apart = clipped_result(facts, producer) is None and levels_of_steps(producer) == 0
    if multiplies_matrices(producer) and (apart or not paired):
        return "ACTIVATION", f"it follows floats: {_why_floats(facts, producer)}", []
    if remains := why_remains(facts, node.outputs[0]):
        return remains
    if producer.name in integer and _behind(facts, producer) == node.outputs[0]:
        return "FUSED", f"computed by the integer kernel of {producer.name!r}", []
    if producer.is_operation and producer.inputs and producer.name not in integer:
        return "ACTIVATION", f"it follows floats: {_why_floats(facts, producer)}", []
    return "ACTIVATION", "no integer kernel stands before it that could absorb it", []


def _why_floats(facts: PlanFacts, node: Node) -> str:
    if node.is_operation:
        return f"{node.name!r} computes them"
    if facts.owns_bias(node) or facts.merged_into(node):
        return f"the bias of {node.name!r} is added to them"
    return f"the kernel of {node.name!r} returns them"


def _activation_kernel(facts: PlanFacts, node: Node, name: str) -> Verdict:
    fix: Fix = {"name": node.layer, "quantize_weight": False, "quantize_output": True}
    if facts.wide_grids(node):
        return "GRID", f"{facts.wide_grids(node)[0]!r} has more than 8 bits", []
    # Before the pairs, which the plan leaves out because of it.
    if is_softmax_of_one(facts.graph, node):
        return "ACTIVATION", "a softmax along an axis of one element is always 1; its integer kernel is wrong", []
    if propagation_of(facts).float_inputs(node):
        return "ACTIVATION", f"{name} has an integer kernel, but its input is not quantized", [fix]
    if propagation_of(facts).pair_behind(node.outputs[0]) is None:
        missing = f"{name} has an integer kernel, but its output has no pair that all readers share"
        return why_no_shared_pair(facts, node.outputs[0], "ACTIVATION", missing, fix)
    return "INTEGER", f"{name} between two pairs", []


def _convolution(facts: PlanFacts, node: Node) -> Verdict:
    fix: list[Fix] = [{"name": node.layer, "quantize_input": True, "quantize_weight": True}]
    weights, inputs = facts.float_weights(node), propagation_of(facts).float_inputs(node)
    tensor = facts.behind(node, _TARGET.fused_activations)
    own = node.activation_name
    fusible = own in _TARGET.fused_activations | {"linear"}
    if weights:
        return "WEIGHT", f"its weight {weights[0]!r} stays in float", fix
    if inputs:
        return "INPUT", "its input is not quantized", fix
    if packed := why_packed(facts, node):
        return packed
    if not fusible:
        reason = f"its own activation {own} cannot be fused, and the tensor before it is not visible to a pair"
        return "ACTIVATION", reason, [SPLIT_ACTIVATIONS]
    return _output(facts, tensor, "input, kernel and output are quantized")


def _behind(facts: PlanFacts, node: Node) -> str:
    return facts.behind(node, _TARGET.fused_activations)


def _output(facts: PlanFacts, tensor: str, reason: str) -> Verdict:
    if remains := why_remains(facts, tensor):
        return remains
    if propagation_of(facts).pair_behind(tensor) is not None:
        return "INTEGER", reason, []
    producer = facts.graph.producer(tensor).layer
    fix: Fix = {"name": producer, "quantize_input": False, "quantize_weight": False, "quantize_output": True}
    missing = f"its result {tensor!r} has no Q/DQ pair that all its readers share"
    return why_no_shared_pair(facts, tensor, "OUTPUT", missing, fix)


def _product(facts: PlanFacts, node: Node) -> Verdict:
    """Judge a matrix product with a kernel; it may return floats, to which bias and activation are then applied."""
    fix: list[Fix] = [{"name": node.layer, "quantize_input": True, "quantize_weight": True}]
    weights = facts.float_weights(node)
    if weights:
        return "WEIGHT", f"its weight {weights[0]!r} stays in float", fix
    blocks = _in_blocks(facts, node)
    if blocks is not None:
        return _blocks(facts, node, blocks)
    if propagation_of(facts).float_inputs(node):
        return "WEIGHT-ONLY", "its input is not quantized: at best its weights are read as integers", fix
    if packed := why_packed(facts, node):
        return packed
    clipping = clipped_in_activation(facts, node)
    if clipping is not None:
        reason = f"{clipping.activation_name} begins with a ReLU, which the runtime takes for a part of the product"
        paired: list[Fix | str] = [{"name": node.layer, "quantize_output": True}]
        return "ACTIVATION", reason, [SPLIT_ACTIVATIONS] if clipping is node else paired
    return _product_of_integers(facts, node, "input and kernel are quantized; the result may be float")


def _blocks(facts: PlanFacts, node: Node, placed: Placement) -> Verdict:
    """Judge a float product whose weights are in blocks: its kernel supports certain block sizes."""
    calls, size = len(facts.graph.calls(node.layer)), _block_of(node, placed)
    if not _has_kernel(size):
        reason = f"the file has its weights in blocks of {size} values, because several axes become one"
        return "BLOCKS-SIZE", f"{reason}; they are dequantized and it computes in float", []
    if calls > 1:
        return "BLOCKS-SHARED", f"the layer is called {calls} times, so its weights are dequantized for all calls", []
    if propagation_of(facts).float_inputs(node):
        return "BLOCKS", f"its weights are read as {placed.quantizer.label}; its input is float", []
    fix: list[Fix] = [{"name": node.layer, "quantize_input": False, "quantize_weight": True}]
    return "BLOCKS-INPUT", "its input is quantized, so its weights are dequantized and it computes in float", fix


def _in_blocks(facts: PlanFacts, node: Node) -> Placement | None:
    """Return the placement of a weight that the file stores in blocks; one block may become a scale per output."""
    placed = facts.blocks(node)
    if placed is None or not facts.is_one_block(node):
        return placed
    # With up to 4 bits MatMulNBits takes one block per output, too.
    return placed if _has_kernel(_block_of(node, placed)) and placed.quantizer.num_bits <= _PACKED_BITS else None


def _block_of(node: Node, placed: Placement) -> int:
    return block_in_file(node, placed.weight or "", placed.quantizer.axis or 0, placed.quantizer.block_size or 1)


def _has_kernel(size: int) -> bool:
    return size >= _SHORTEST_BLOCK and not size & (size - 1)


def _product_of_integers(facts: PlanFacts, node: Node, reason: str) -> Verdict:
    """Judge a product of integers by its readers: one QuantizeLinear, which absorbs a ReLU or Clip, or floats only."""
    clipped, parted = float_behind_clip(facts, node), partly_quantized_result(facts, node)
    tensor = parted if clipped is None else clipped
    if tensor is None:
        return "INTEGER", reason, []
    if remains := why_remains(facts, tensor):
        return remains
    producer = facts.graph.producer(tensor).layer
    fix = {"name": producer, "quantize_output": True}
    if producer != node.layer:
        fix.update(quantize_input=False, quantize_weight=False)
    if clipped is None:
        missing = f"some readers of its result {tensor!r} read it through a pair, others do not, or through another one"
    else:
        missing = f"the ReLU behind it ({clipped!r}) has one reader, and no Q/DQ pair in front of that"
    return why_no_shared_pair(facts, tensor, "OUTPUT", missing, fix)


def _merge_or_pool(facts: PlanFacts, node: Node) -> Verdict:
    operands = facts.why_not_two_operands(node) if node.is_a(*ADDITIONS, *TENSOR_PRODUCTS) else None
    if operands is not None:
        return "OPERANDS", operands, []
    inputs = propagation_of(facts).float_inputs(node)
    if inputs:
        return "INPUT", f"input {inputs[0]} is not quantized", _merge_fix(facts, node)
    if node.is_a("Matmul"):
        return _product_of_integers(facts, node, "both operands are quantized; the result may be float")
    return _output(facts, facts.behind(node, _TARGET.fused_activations), "inputs and output are quantized")


def _merge_fix(facts: PlanFacts, node: Node) -> list[Fix]:
    """Return the fix that gives a merge its pairs; none where its readers would not share the one behind it."""
    propagation, result = propagation_of(facts), node.outputs[0]
    if propagation.pair_behind(result) is not None:
        return [{"name": node.layer}]
    return [{"name": node.layer, "quantize_output": True}] if propagation.takes_pair(result) else []


def _scaled_sum(facts: PlanFacts, node: Node) -> Verdict:
    """Judge `x + scale * y`, the merge of InceptionResNetV2; its last one has scale 1, which the runtime drops."""
    if node.settings.get("scale") == 1:
        return _merge_or_pool(facts, node)
    return "NO-KERNEL", "one operand is scaled by a float", []


def _moves_values(facts: PlanFacts, node: Node) -> Verdict:
    passes, reason = propagation_of(facts).passes(node)
    if passes:
        return "INTEGER", reason, []
    if propagation_of(facts).float_inputs(node):
        return "INPUT", reason, _scale_fix(facts, node, quantize_input=True)
    return "SCALE", reason, _scale_fix(facts, node, quantize_output=True)


def _same_scale(facts: PlanFacts, node: Node) -> Verdict:
    if node.is_a(*_BILINEAR) and node.settings.get("interpolation", "nearest") != "nearest":
        return "NO-KERNEL", f"{node.settings['interpolation']} interpolation is computed in float", []
    if propagation_of(facts).float_inputs(node):
        return "INPUT", "its input is not quantized", _scale_fix(facts, node, quantize_input=True)
    if propagation_of(facts).one_scale(node):
        return "INTEGER", "input and output share one scale", []
    missing = "its output has no pair with the scale of its input"
    fix = _scale_fix(facts, node, quantize_output=True)
    return why_clipped(facts, node.outputs[0]) or ("SCALE", missing, fix)


def _scale_fix(facts: PlanFacts, node: Node, **pair: bool) -> list[Fix]:
    """Return the fix that gives a node a pair; none where its input and its result would still have two scales."""
    fix: Fix = {"name": node.layer, **pair, "quantize_weight": False}
    return [fix] if propagation_of(facts).takes_input_scale(node) else []


def _padding(facts: PlanFacts, node: Node) -> Verdict:  # noqa: ARG001 - as the others
    return "NO-KERNEL", "ONNX Runtime pads in float", []


_JUDGES: tuple[tuple[tuple[str, ...], Callable[[PlanFacts, Node], Verdict]], ...] = (
    (DIRECT_CONVOLUTIONS, _convolution),
    (MATRIX_PRODUCTS, _product),
    # The others with an integer kernel merge tensors or average.
    (tuple(_TARGET.integer_kinds), _merge_or_pool),
    (("CustomScaleLayer",), _scaled_sum),
    (PADDINGS, _padding),
    # Before the kinds with one scale, some of which are in both: through these the runtime also moves pairs.
    (PASSED, _moves_values),
    (tuple(_TARGET.same_scale_kinds), _same_scale),
)
