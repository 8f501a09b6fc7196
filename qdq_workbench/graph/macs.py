"""How many multiply-accumulate operations a node takes for one sample, from shapes alone.

    convolution         output positions x kernel elements (the kernel has C_in / groups input channels)
    transposed          input positions x kernel elements
    matrix product      output elements x contracted length

Unknown sizes other than the batch count as 1; additions of biases and everything without products count as 0.
"""

from __future__ import annotations

import math

from qdq_workbench.graph.model_graph import ModelGraph, Node
from qdq_workbench.graph.op_kinds import CONVOLUTIONS

_TRANSPOSED = ("Conv1DTranspose", "Conv2DTranspose", "Conv3DTranspose")


def count_macs(graph: ModelGraph, node: Node) -> int:
    """Return the multiply-accumulate operations of one call for one sample.

    Args:
        graph: The model.
        node: One of its nodes.

    Returns:
        The count; 0 for nodes without products of values and weights or of two tensors.

    Example:
        >>> from qdq_workbench.graph.model_graph import Tensor, Weight
        >>> dense = Node("d", "d", "Dense", inputs=("x",), outputs=("d",), weights=(Weight("kernel", (4, 3)),))
        >>> tensors = {"x": Tensor("x", (None, 4), "float32", "x"), "d": Tensor("d", (None, 3), "float32", "d")}
        >>> graph = ModelGraph("net", (Node("x", "x", "InputLayer", outputs=("x",)), dense), tensors, ("x",), ("d",))
        >>> count_macs(graph, dense)
        12
    """
    if not node.outputs or not node.inputs:
        return 0
    result = graph.tensors[node.outputs[0]].shape
    if node.class_name == "Matmul" or (node.is_a("Dot") and not node.weights):
        return _elements(result[1:]) * int(graph.tensors[node.inputs[0]].shape[-1] or 1)
    kernels = [weight.shape for weight in node.weights if _multiplies(weight.name)]
    if not kernels:
        return 0
    if node.is_a(*CONVOLUTIONS):
        shape = graph.tensors[node.inputs[0]].shape if node.is_a(*_TRANSPOSED) else result
        return _positions(node, shape) * sum(math.prod(shape) for shape in kernels)
    # A matrix product is applied at every position of a sequence or image; so are the gates of a recurrent layer.
    source = graph.tensors[node.inputs[0]].shape
    return _elements(source[1:-1]) * sum(math.prod(shape) for shape in kernels)


def _multiplies(weight: str) -> bool:
    return weight.rpartition("/")[2] in ("kernel", "depthwise_kernel", "pointwise_kernel", "recurrent_kernel")


def _positions(node: Node, shape: tuple[int | None, ...]) -> int:
    return _elements(shape[2:] if node.settings.get("data_format") == "channels_first" else shape[1:-1])


def _elements(shape: tuple[int | None, ...]) -> int:
    return math.prod(size or 1 for size in shape)
