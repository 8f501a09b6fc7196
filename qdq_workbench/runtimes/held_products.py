"""A convolution or matrix product inside `TimeDistributed` or `SpectralNormalization`, for the rules of ONNX Runtime.

`TimeDistributed` is in a file what it holds, with all steps as one batch: Reshape, the operator, Reshape. The runtime
moves the integers of a pair through these Reshapes, forwards and backwards. But the bias stays float, because the pair
does not stand directly in front of the operator, and a Gemm with a float bias returns integers only.
"""

from __future__ import annotations

from qdq_workbench.graph.kinds import DIRECT_CONVOLUTIONS, HOLDING_ONE, MATRIX_PRODUCTS
from qdq_workbench.graph.model_graph import Node, Part
from qdq_workbench.placement.targets import get_target
from qdq_workbench.runtimes.facts import PlanFacts
from qdq_workbench.runtimes.few_bits import why_clipped, why_packed
from qdq_workbench.runtimes.inner_layers import inner_products, is_transparent
from qdq_workbench.runtimes.judge_layers import Verdict
from qdq_workbench.runtimes.propagation import propagation_of
from qdq_workbench.runtimes.verdict import Fix

_FUSED = get_target("onnxruntime").fused_activations
_ROWS = 2


def held_product(node: Node) -> Part | None:
    """Return the convolution or matrix product that is all a layer holds; None for other layers."""
    if not is_transparent(node):
        return None
    products = inner_products(node)
    others = [part for part in node.parts if part not in products and not set(HOLDING_ONE).intersection(part.classes)]
    kinds = {*DIRECT_CONVOLUTIONS, *MATRIX_PRODUCTS}
    if len(products) != 1 or others or not kinds.intersection(products[0].classes):
        return None
    # A subclass of such a layer may take the mask beside it, and is then computed step by step.
    if len(node.inputs) > 1 and products[0].class_name not in kinds:
        return None
    return products[0]


def judge_held(facts: PlanFacts, node: Node, product: Part) -> Verdict:
    """Judge a layer that holds no more than one convolution or matrix product."""
    fix: list[Fix] = [{"name": node.layer, "quantize_input": True, "quantize_weight": True}]
    what, convolves = f"the {product.class_name} inside", bool(set(DIRECT_CONVOLUTIONS).intersection(product.classes))
    weights, floats = facts.float_weights(node), propagation_of(facts).float_inputs(node)
    own = product.settings.get("activation") or "linear"
    biased = any(weight.name.rpartition("/")[2] == "bias" for weight in node.weights)
    steps = _levels_of_steps(node)
    joins_bias = not biased or len(facts.graph.tensors[node.inputs[0]].shape) - steps == _ROWS
    needs_integers = convolves or (biased and joins_bias and steps > 0)
    fuses, tensor = own in {*_FUSED, "linear"}, facts.behind(node, _FUSED)
    has_pair = propagation_of(facts).pair_behind(tensor) is not None
    if weights:
        return "WEIGHT", f"its weight {weights[0]!r} stays in float", fix
    if floats:
        return "INPUT" if convolves else "WEIGHT-ONLY", "its input is not quantized", fix
    if packed := why_packed(facts, node):
        return packed
    if needs_integers and not fuses:
        return "ACTIVATION", f"{own}, the activation of {what}, is computed in float in front of the pair", []
    # Without the addition of a bias between them a product and its ReLU are one kernel, which returns integers only.
    if not needs_integers and not (joins_bias and own in _FUSED):
        return "INTEGER", f"{what}: input and kernel are quantized; the result may be float", []
    reads_sizes = _reads_sizes(facts, node, product)
    if has_pair and not reads_sizes:
        return "INTEGER", f"{what}: input, kernel and output are quantized", []
    missing = f"{what} returns integers only, and {tensor!r} has no Q/DQ pair that all its readers share"
    producer = facts.graph.producer(tensor).layer
    output = {"name": producer, "quantize_output": True}
    if producer != node.layer:
        output.update(quantize_input=False, quantize_weight=False)
    if reads_sizes:
        missing = f"the file reads the open sizes of {tensor!r} from the result of {what}, beside any pair"
    return why_clipped(facts, tensor) or ("OUTPUT", missing, [] if reads_sizes else [output])


def _reads_sizes(facts: PlanFacts, node: Node, product: Part) -> bool:
    """Return whether a file reads sizes from what a layer computes on all steps: open ones that are not its input's."""
    sizes = facts.graph.tensors[node.outputs[0]].shape[2:-1]
    return _levels_of_steps(node) > 0 and product.class_name != "Dense" and None in sizes


def _levels_of_steps(node: Node) -> int:
    """Return how many axes of steps a layer makes one with the batch."""
    return sum("TimeDistributed" in classes for classes in (node.classes, *(part.classes for part in node.parts)))
