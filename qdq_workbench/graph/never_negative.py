"""The layers whose results are never negative, as `operators.py` has it of the operators in a file.

    makes      no result is negative for any input
    keeps      no result is negative if no input is: it selects, moves or averages values

Planning, explanations and the exporter must agree on both tables: zero padding is absorbed by the max pooling after it
only if no value is negative.
"""

from __future__ import annotations

import math

from qdq_workbench.graph.activations import maximum_of
from qdq_workbench.graph.kinds import classes_where
from qdq_workbench.graph.model_graph import ModelGraph, Node
from qdq_workbench.graph.op_kinds import JOINS_CONSTANTS, is_product, pads_with_zeros, vanishes

#: Activations by name.
MAKES = ("relu", "relu6", "clipped_relu", "sigmoid", "softmax")
#: Layers and operations by class.
KEEPS = classes_where(lambda kind: kind.operator != "")
#: The interpolations that stay within the range of their inputs; bicubic and Lanczos overshoot.
INTERPOLATIONS = ("nearest", "bilinear")


def is_never_negative(graph: ModelGraph, tensor: str) -> bool:
    """Return whether a tensor cannot hold negative values, because of the activation before it.

    Pooling, padding, concatenation, upsampling, dropout and data movement after the activation keep the property.
    """
    return tensor in graph.once(_never_negative)


def _never_negative(graph: ModelGraph) -> frozenset[str]:
    found: set[str] = set()
    # One pass in computing order: a tensor may be reached by exponentially many paths.
    for node in graph.nodes:
        kept = _keeps(node) and bool(node.inputs) and found.issuperset(node.inputs)
        if kept or _makes(node):
            found.update(node.outputs)
    return frozenset(found)


def _makes(node: Node) -> bool:
    """Return whether a node ends in such an activation: a recurrent or custom layer may compute on with its result."""
    last = node.is_activation or is_product(node)
    return last and not node.opaque and node.activation_name in MAKES


def _keeps(node: Node) -> bool:
    if node.opaque or not (vanishes(node) or node.is_a(*KEEPS) or pads_with_zeros(node)):
        return False
    if node.settings.get("interpolation", "nearest") not in INTERPOLATIONS:
        return False
    # A joined constant may be negative.
    return not node.settings.get(JOINS_CONSTANTS)


def ceiling(graph: ModelGraph, tensor: str) -> float:
    """Return the maximum of the ReLU behind which a tensor lies; infinity without one.

    The layers of `is_never_negative` keep it; of several joined tensors the largest counts.
    """
    return graph.once(_ceilings)[tensor]


def _ceilings(graph: ModelGraph) -> dict[str, float]:
    found: dict[str, float] = {}
    for node in graph.nodes:
        if _makes(node):
            own = maximum_of(node, node.activation_name)
        else:
            own = max((found[name] for name in node.inputs), default=math.inf) if _keeps(node) else math.inf
        found.update(dict.fromkeys(node.outputs, own))
    return found


def is_gate(graph: ModelGraph, tensor: str) -> bool:
    """Return whether a tensor is never negative, if no constant factor is: a gate such as `relu6(x + 3) * (1 / 6)`.

    A hard sigmoid is several operators in a file, whose constants only the file has.
    """
    node = graph.producer(tensor)
    while node.is_a("Multiply") and len(node.inputs) == 1:
        tensor = node.inputs[0]
        node = graph.producer(tensor)
    return is_never_negative(graph, tensor) or (node.is_activation and node.activation_name == "hard_sigmoid")
