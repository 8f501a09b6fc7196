"""The ReLU or Clip directly behind a matrix product, with which ONNX Runtime forms no integer kernel of the product.

The runtime matches a ReLU or Clip with one reader as a part of the product in front of it, and leaves the product in
float unless a QuantizeLinear behind makes the ReLU or Clip unnecessary (`remaining_clips`). One that has two readers,
or is an output of the model, is not matched: the product returns floats. The Clip in front of a pair whose grid leaves
out values of its integer type is matched too, and is never unnecessary.

Nor does it form one where a QuantizeLinear is not all that reads the product.
"""

from __future__ import annotations

from qdq_workbench.graph.activations import BEGINS, CLIP
from qdq_workbench.graph.model_graph import Node
from qdq_workbench.graph.op_kinds import vanishes
from qdq_workbench.placement.targets import get_target
from qdq_workbench.runtimes.facts import PlanFacts
from qdq_workbench.runtimes.inner_layers import is_moved, own_activation, owns_bias
from qdq_workbench.runtimes.propagation import propagation_of
from qdq_workbench.runtimes.remaining_clips import why_remains

_CLIPPING = get_target("onnxruntime").fused_activations
# What reads its input several times, as tf2onnx writes it. A reader that is not listed counts once, which at worst
# calls a product float that is not.
_ACTIVATIONS_THAT_READ_AGAIN = {
    *("gelu", "silu", "hard_silu", "mish", "celu", "squareplus", "prelu", "tanh_shrink", "sparsemax"),
    *("soft_shrink", "hard_shrink", "sparse_plus", "sparse_sigmoid"),
}
_ROWS = 2
_READ_AGAIN = ("RMSNormalization", "UnitNormalization", "Square", "Std", "Var", "Logsumexp")


def clipped_result(facts: PlanFacts, node: Node) -> str | None:
    """Return the output of the ReLU directly behind a product in the file; None if there is none."""
    tensor = _result(facts, node)
    if tensor is None or own_activation(node) in _CLIPPING:
        return tensor
    if facts.is_paired(tensor) or not facts.graph.has_one_use(tensor):
        return None
    reader = facts.graph.readers(tensor)[0][0]
    return reader.outputs[0] if reader.activation_name in _CLIPPING and reader.is_activation else None


def float_behind_clip(facts: PlanFacts, node: Node) -> str | None:
    """Return the tensor that the ReLU or Clip behind a product of quantized operands keeps in float, or None.

    It is what the ReLU writes, or the Clip reads.
    """
    if is_moved(node):
        return None
    tensor, propagation = clipped_result(facts, node), propagation_of(facts)
    if tensor is None:
        tensor = _result(facts, node)
        if tensor is None or not facts.is_paired(tensor) or propagation.clip_behind(tensor) is None:
            return None
    stays = propagation.pair_behind(tensor) is None or why_remains(facts, tensor) is not None
    return tensor if stays and _reads(facts, tensor) == 1 else None


def partly_quantized_result(facts: PlanFacts, node: Node) -> str | None:
    """Return what a product of quantized operands writes, if a QuantizeLinear reads it and something else does, too.

    A kernel of a product returns integers for one QuantizeLinear and no other reader, or floats for no QuantizeLinear.
    """
    # A Reshape or Transpose, or the operator of a ReLU that has several readers, is all that reads the product itself.
    if is_moved(node) or own_activation(node) in _CLIPPING:
        return None
    tensor = _result(facts, node)
    return tensor if tensor is not None and propagation_of(facts).is_partly_quantized(tensor) else None


def clipped_in_activation(facts: PlanFacts, node: Node) -> Node | None:
    """Return the layer whose activation, which a user wrote, begins with a ReLU or Clip directly behind a product.

    That is the product's own, or the one behind it. None for other activations.
    """
    if is_moved(node):
        return None
    shape = facts.graph.tensors[node.outputs[0]].shape
    begins = node.settings.get(BEGINS)
    if begins is not None:
        # On two axes the one number that is added becomes a part of the bias of one unit.
        joined = len(shape) == _ROWS and (begins == CLIP or shape[-1] == 1)
        apart = len(shape) > _ROWS and begins == CLIP and not owns_bias(node)
        return node if joined or apart else None
    tensor = _result(facts, node)
    if tensor is None or facts.is_paired(tensor) or not facts.graph.has_one_use(tensor):
        return None
    reader = facts.graph.readers(tensor)[0][0]
    return reader if reader.is_activation and reader.settings.get(BEGINS) == CLIP else None


def _result(facts: PlanFacts, node: Node) -> str | None:
    """Return the output of a product and of its ReLU in the file; None with another operator between."""
    graph, tensor = facts.graph, node.outputs[0]
    own = own_activation(node)
    # On more than two axes the bias is an addition of floats behind the product.
    added = len(graph.tensors[tensor].shape) > 2 and owns_bias(node)
    if own in _CLIPPING:
        return None if added else tensor
    for name in facts.merged_into(node):
        tensor, added = graph.node(name).outputs[0], added or len(graph.tensors[tensor].shape) > 2
    while graph.has_one_use(tensor) and vanishes(graph.readers(tensor)[0][0]) and not facts.is_paired(tensor):
        tensor = graph.readers(tensor)[0][0].outputs[0]
    return None if added or own != "linear" else tensor


def _reads(facts: PlanFacts, tensor: str) -> int:
    """Return how many nodes of the file read a tensor; an output of the model counts as two."""
    count, pending = 0, [tensor]
    while pending:
        tensor = pending.pop()
        for_all = facts.plan.output_placement(tensor)
        if tensor in facts.graph.outputs and for_all is None:
            count += 2
            continue
        # Readers through pairs on one grid read one QuantizeLinear.
        grids = set() if for_all is None or tensor not in facts.graph.outputs else {for_all.quantizer}
        for node, index in facts.graph.readers(tensor):
            placement = facts.plan.input_placement(node.name, index)
            if placement is not None:
                grids.add(placement.quantizer)
            elif vanishes(node):
                pending.append(node.outputs[0])
            else:
                count += _times_read(node, index)
        count += len(grids)
    return count


def _times_read(node: Node, index: int) -> int:
    """Return how many nodes of the file read an input of a layer."""
    if node.is_a("Stack") and node.inputs[index] in node.inputs[:index]:
        return 0  # every tensor gets its new axis once
    again = node.is_activation and node.activation_name in _ACTIVATIONS_THAT_READ_AGAIN
    return 2 if again or node.is_a(*_READ_AGAIN) else 1
