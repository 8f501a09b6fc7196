"""How exact a float value can be at most that comes out of a function which saturates."""

from __future__ import annotations

from collections.abc import Collection

from qdq_workbench.graph.kinds import MULTI_HEAD_ATTENTION, RECURRENT
from qdq_workbench.graph.model_graph import ModelGraph, Node
from qdq_workbench.graph.op_kinds import activation_name

#: The last bit of a float32 around 1.
NOISE = 2.0**-23
_SATURATING = frozenset({"hard_sigmoid", "sigmoid", "softmax", "tanh"})
_HOLDING = (*RECURRENT, *MULTI_HEAD_ATTENTION, "Bidirectional", "TimeDistributed")


def noise_of(graph: ModelGraph, tensor: str, cut: Collection[str]) -> float:
    """Return by how much two correct programs may differ in a tensor, whatever its size.

    Kernels of the logistic function and its kin are exact to the last bit of 1, where they saturate: TensorFlow gives
    3e-20 for sigmoid(-45), ONNX Runtime 0.

    Args:
        graph: The model.
        tensor: Name of the tensor.
        cut: Tensors whose values both programs start from.
    """
    pending, seen = [tensor], {tensor}
    while pending:
        name = pending.pop()
        node = graph.producer(name)
        if _saturates(node):
            return NOISE
        new = [source for source in node.inputs if source not in seen and source not in cut]
        seen.update(new)
        pending += new
    return 0.0


def _saturates(node: Node) -> bool:
    return activation_name(node) in _SATURATING or node.is_a(*_HOLDING)
