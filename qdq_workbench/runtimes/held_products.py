"""A convolution inside `TimeDistributed` or `SpectralNormalization`, or a product inside `TimeDistributed`.

The rules are those of ONNX Runtime. `TimeDistributed` is in a file what it holds, with all steps as one batch: Reshape,
the operator, Reshape. The runtime moves the integers of a pair through these Reshapes, forwards and backwards. But the
bias stays float, because the pair does not stand directly in front of the operator, and a Gemm with a float bias
returns integers only. A product in `SpectralNormalization` alone is in a file as if it stood by itself.
"""

from __future__ import annotations

from qdq_workbench.graph.kinds import DIRECT_CONVOLUTIONS
from qdq_workbench.graph.model_graph import Node, Part
from qdq_workbench.placement.targets import get_target
from qdq_workbench.runtimes.facts import PlanFacts
from qdq_workbench.runtimes.few_bits import why_clipped, why_no_shared_pair, why_packed
from qdq_workbench.runtimes.inner_layers import is_moved, levels_of_steps, own_activation, owns_bias
from qdq_workbench.runtimes.judge_layers import Verdict
from qdq_workbench.runtimes.propagation import propagation_of
from qdq_workbench.runtimes.remaining_clips import why_remains
from qdq_workbench.runtimes.verdict import Fix

_FUSED = get_target("onnxruntime").fused_activations
_ROWS = 2


def judge_held(facts: PlanFacts, node: Node, product: Part) -> Verdict:
    """Judge a layer that holds no more than one convolution, or that computes one matrix product for every step."""
    fix: list[Fix] = [{"name": node.layer, "quantize_input": True, "quantize_weight": True}]
    what, convolves = f"the {product.class_name} inside", bool(set(DIRECT_CONVOLUTIONS).intersection(product.classes))
    weights, floats = facts.float_weights(node), propagation_of(facts).float_inputs(node)
    own, biased = own_activation(node), owns_bias(node)
    in_rows = len(facts.graph.tensors[node.outputs[0]].shape) - levels_of_steps(node) == _ROWS
    needs_integers = convolves or (biased and in_rows)
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
    levels = [] if product.class_name == "Dense" else _levels_with_sizes(facts, node)
    reads_sizes, beside = bool(levels), levels_of_steps(node) in levels
    # A product and the ReLU directly behind it are one kernel, which returns integers only, if nothing else reads the
    # ReLU. A bias that is no part of the product is added between them.
    clips = own in _FUSED and not biased and not is_moved(node) and not beside
    if not needs_integers and not clips:
        return "INTEGER", f"{what}: input and kernel are quantized; the result may be float", []
    if has_pair and not reads_sizes:
        return why_remains(facts, tensor) or ("INTEGER", f"{what}: input, kernel and output are quantized", [])
    missing = f"{what} returns integers only, and {tensor!r} has no Q/DQ pair that all its readers share"
    producer = facts.graph.producer(tensor).layer
    output = {"name": producer, "quantize_output": True}
    if producer != node.layer:
        output.update(quantize_input=False, quantize_weight=False)
    if reads_sizes:
        missing = f"the file reads the open sizes of {tensor!r} from the result of {what}, beside any pair"
        return why_clipped(facts, tensor) or ("OUTPUT", missing, [])
    return why_no_shared_pair(facts, tensor, "OUTPUT", missing, output)


def _levels_with_sizes(facts: PlanFacts, node: Node) -> list[int]:
    """Return behind which Reshapes to steps a file reads open sizes from the result, counted from the outermost.

    A Reshape to a known number of steps copies several open sizes of what it reads. Of one, it needs the value,
    because the size that it finds out by itself is that of the batch.
    """
    shape = facts.graph.tensors[node.inputs[0]].shape
    # The result has as many open sizes as the input; Keras declares more of an EinsumDense.
    sizes = {axis: shape[axis + 1 :].count(None) for axis in range(1, levels_of_steps(node) + 1)}
    return [axis for axis, count in sizes.items() if count == 1 or (count > 1 and shape[axis] is None)]
