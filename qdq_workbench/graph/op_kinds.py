"""The function of a node, whether it is a layer or a `keras.ops` function: convolutions, products, paddings."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator

from qdq_workbench.graph.kinds import (
    BATCH_NORMALIZATION,
    CONVOLUTIONS,
    DROPOUTS,
    MATRIX_PRODUCTS,
    MERGES,
    PADDINGS,
    RESHAPINGS,
    VANISHING,
)
from qdq_workbench.graph.model_graph import ModelGraph, Node

#: The node setting of an `ops.pad` that pads with zeros: how many, before and after each axis.
ZEROS = "zeros"
#: The node setting of an `ops.pad` that pads with infinity, as in front of a max pool.
INFINITE = "infinite"
#: The node setting of a layer that chooses values by the masks that its inputs carry (`kinds.CHOOSING_BY_MASK`).
MASKED = "masked"
#: The node setting of a merge, a layer or an operation on a list, that has constants beside its tensors.
JOINS_CONSTANTS = "joins_constants"
#: Activations whose input TFMOT quantizes instead of their output; for gelu both are.
BEFORE_ACTIVATION = ("softmax", "sigmoid", "tanh", "gelu")


def multiplies_with_table(node: Node) -> bool:
    """Return whether a call of an embedding multiplies with its table instead of looking up rows."""
    return bool(node.settings.get("reverse")) and node.is_a("Embedding")


def is_convolution(node: Node) -> bool:
    """Return whether the node is a convolution of any kind, or a subclass of one."""
    return not node.is_operation and node.is_a(*CONVOLUTIONS)


def is_product(node: Node) -> bool:
    """Return whether the node is a convolution or a matrix product with a kernel, or a subclass of one."""
    return not node.is_operation and node.is_a(*CONVOLUTIONS, *MATRIX_PRODUCTS)


def vanishes(node: Node) -> bool:
    """Return whether a layer does nothing at inference and has no operator in a file."""
    return node.once(_vanishes)


def _vanishes(node: Node) -> bool:
    if node.is_operation or node.opaque:  # a user's own dropout may be active at inference
        return False
    if node.is_a(*MERGES) and len(node.inputs) == 1:
        # A product of one tensor still reads its mask.
        return not (node.settings.get(JOINS_CONSTANTS) or node.settings.get(MASKED))
    return node.is_a(*VANISHING) or (node.is_a("Activation") and node.activation_name == "linear")


def adds_constant(node: Node) -> bool:
    """Return whether a node is `x + c`: an operation, or an `Add` layer called on a tensor and a constant."""
    joins = node.is_operation or node.settings.get(JOINS_CONSTANTS, False)
    return node.class_name == "Add" and len(node.inputs) == 1 and joins


def reads_infinity(graph: ModelGraph, node: Node) -> bool:
    """Return whether a node reads a tensor that was padded with infinity, which has no range."""
    return any(graph.producer(tensor).settings.get(INFINITE) for tensor in node.inputs)


def pads_with_zeros(node: Node) -> bool:
    """Return whether a layer or an operation only pads with zeros."""
    return ZEROS in node.settings if node.is_operation else not node.opaque and node.is_a(*PADDINGS)


def ends_in_convolution(graph: ModelGraph, tensor: str) -> bool:
    """Return whether `tensor` is the result of a convolution that an inference runtime can fuse with its reader.

    Recognises Conv, Conv-BN, Conv-BN-activation and Conv-BN[-activation]-Dropout. Every tensor in between must have a
    single reader inside the model; otherwise the convolution's result is needed elsewhere too.
    """
    path = [tensor]
    found = {}
    # From the sum backwards, so the last layer of the chain comes first.
    for kind, belongs in (("dropout", _is_dropout), ("activation", _is_activation), ("batch_norm", _is_batch_norm)):
        node = graph.producer(path[-1])
        found[kind] = belongs(node) and len(node.inputs) == 1
        if found[kind]:
            path.append(node.inputs[0])
    # The chains of NVIDIA's toolkit, and Conv-BN-Dropout: directly behind a convolution neither of the two counts.
    if (found["dropout"] or found["activation"]) and not found["batch_norm"]:
        return False
    return is_convolution(graph.producer(path[-1])) and all(graph.has_one_use(name) for name in path)


def step_behind(graph: ModelGraph, tensor: str, stops: Collection[str], fuses: Callable[[Node], bool]) -> str:
    """Return the output of the only reader of `tensor` if that reader is fused, else `tensor` itself.

    Layers that vanish are no readers. `stops` are tensors that must exist, because they have a Q/DQ pair.
    """
    last = tensor
    while last not in stops and graph.has_one_use(last):
        reader = graph.readers(last)[0][0]
        last = reader.outputs[0]
        if not vanishes(reader):
            return last if fuses(reader) else tensor
    return tensor


def step_before(graph: ModelGraph, tensor: str, stops: Collection[str]) -> Node | None:
    """Return the node that computes `tensor`, before layers that vanish; None if anything else needs what lies between.

    That is a pair, for tensors in `stops`, or another reader.
    """
    while tensor not in stops and graph.has_one_use(tensor):
        node = graph.producer(tensor)
        if not vanishes(node):
            return node
        tensor = node.inputs[0]
    return None


def readers_past_vanishing(graph: ModelGraph, tensor: str) -> Iterator[tuple[Node, int]]:
    """Yield the readers of `tensor` with the index of the input, and those behind each reader that vanishes."""
    return _readers_past(graph, tensor, vanishes)


def readers_in_onnx(graph: ModelGraph, tensor: str) -> Iterator[tuple[Node, int]]:
    """Yield the readers of `tensor`, and those behind each reader that an ONNX file has no operator of."""
    return _readers_past(graph, tensor, lambda node: vanishes(node) or keeps_shape(graph, node))


def _readers_past(graph: ModelGraph, tensor: str, passes: Callable[[Node], bool]) -> Iterator[tuple[Node, int]]:
    waiting = [tensor]
    for reached in waiting:
        for reader, index in graph.readers(reached):
            yield reader, index
            if passes(reader):
                waiting.append(reader.outputs[0])


def keeps_shape(graph: ModelGraph, node: Node) -> bool:
    """Return whether a Flatten or a Reshape keeps the shape of its input: an ONNX file has no operator of it."""
    if not node.is_a(*RESHAPINGS) or node.is_a("Permute"):
        return False
    shapes = [graph.tensors[name].shape for name in (*node.inputs, *node.outputs)]
    return len(set(shapes)) == 1 and None not in shapes[0][1:]


def producer_in_file(graph: ModelGraph, tensor: str) -> Node:
    """Return the node whose operator computes `tensor` in a file: not one of the layers that vanish."""
    node = graph.producer(tensor)
    while vanishes(node):
        node = graph.producer(node.inputs[0])
    return node


def _is_dropout(node: Node) -> bool:
    return not node.is_operation and node.is_a(*DROPOUTS)


def _is_activation(node: Node) -> bool:
    return node.is_activation


def _is_batch_norm(node: Node) -> bool:
    return not node.is_operation and node.is_a(*BATCH_NORMALIZATION)
