"""The table of layers, and of the operators that they become in a file, whose results are never negative.

    makes      no result is negative for any input
    keeps      no result is negative if no input is: it selects, moves or averages values

Planning, explanations and the exporter must agree on this table: zero padding is absorbed by the max pooling after it
only if no value is negative.
"""

from __future__ import annotations

from collections.abc import Collection

from qdq_workbench.graph.kinds import KINDS
from qdq_workbench.graph.model_graph import ModelGraph, Node
from qdq_workbench.graph.op_kinds import is_product, pads_with_zeros, vanishes

#: Activations by name, each with the operator that it becomes; a `Clip` only counts with a minimum from 0 on.
MAKES = {"relu": "Relu", "relu6": "Clip", "clipped_relu": "Clip", "sigmoid": "Sigmoid", "softmax": "Softmax"}

#: Layers and operations by class, each with the operator that it becomes.
KEEPS = {name: kind.operator for name, kind in KINDS.items() if kind.operator}

#: The interpolations that stay within the range of their inputs; bicubic and Lanczos overshoot.
INTERPOLATIONS = ("nearest", "bilinear")
_RESIZE_MODES = ("nearest", "linear")
# Operators that converters add or substitute, and the pairs themselves: every grid contains 0 exactly.
_HELPERS = (
    "Cast",
    "DequantizeLinear",
    "Expand",
    "Flatten",
    "Gather",
    "Identity",
    "QuantizeLinear",
    "ReduceMax",
    "ReduceMean",
    "Split",
    "Tile",
)
_KEEPING_OPERATORS = frozenset({*KEEPS.values(), *_HELPERS})
_MAKING_OPERATORS = frozenset(MAKES.values())


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
    return not node.settings.get("joins_constants")


def makes_never_negative(operator: str) -> bool:
    """Return whether no result of an ONNX operator is negative; of a `Clip` only with a minimum from 0 on."""
    return operator in _MAKING_OPERATORS


def keeps_never_negative(operator: str, mode: str = "") -> bool:
    """Return whether no result of an ONNX operator is negative if no input value is; `mode` is that of a `Resize`."""
    if operator == "Resize":
        return (mode or "nearest") in _RESIZE_MODES
    return operator in _KEEPING_OPERATORS


def read_by(operator: str, inputs: Collection[str]) -> list[str]:
    """Return the inputs of an ONNX operator that hold values, not sizes, axes or scales; "" is one that is left out."""
    names = list(inputs)
    if operator == "Concat":
        return names
    # The third input of a Pad is the value that it pads with.
    return names[:1] + ([names[2]] if operator == "Pad" and len(names) > 2 and names[2] else [])
