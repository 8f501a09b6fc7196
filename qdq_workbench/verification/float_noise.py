"""The float error of activation functions that saturate, such as sigmoid."""

from __future__ import annotations

from collections.abc import Collection

from qdq_workbench.graph.kinds import HOLDERS
from qdq_workbench.graph.model_graph import ModelGraph, Node
from qdq_workbench.graph.op_kinds import activation_name

#: The spacing of float32 numbers just above 1.
NOISE = 2.0**-23
_SATURATING = frozenset({"hard_sigmoid", "sigmoid", "softmax", "tanh"})


def noise_of(graph: ModelGraph, tensor: str, cut: Collection[str]) -> float:
    """Return the absolute error that correct kernels may have in a tensor because a function before it saturates.

    Kernels of sigmoid, tanh and softmax have an absolute error of one float32 spacing at 1, not a relative one:
    TensorFlow gives 3e-20 for sigmoid(-45), ONNX Runtime 0. The search stops at tensors in `cut`, which are equal in
    both programs.
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
    # A layer inside a layer may compute such a function, and the graph does not show it.
    return activation_name(node) in _SATURATING or node.is_a(*HOLDERS)
