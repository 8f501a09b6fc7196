"""What can never be negative: one table, for layers and for the operators that they become in a file.

    makes      no result is negative, whatever comes in
    keeps      no result is negative where no input is: it chooses, moves or averages values

Planning, explanations and the exporter must agree here. Zero padding vanishes into the maximum behind it only where
no value is negative, so what one of them overlooks another one promises in vain.
"""

from __future__ import annotations

from collections.abc import Collection

from qdq_workbench.graph.kinds import KINDS, MATRIX_PRODUCTS
from qdq_workbench.graph.model_graph import ModelGraph, Node
from qdq_workbench.graph.op_kinds import activation_name, is_activation, is_convolution, pads_with_zeros, vanishes

#: Activations by name, each with the operator that it becomes; a `Clip` only counts with a minimum from 0 on.
MAKES = {"relu": "Relu", "relu6": "Clip", "clipped_relu": "Clip", "sigmoid": "Sigmoid", "softmax": "Softmax"}

#: Layers and operations by class, each with the operator that it becomes.
KEEPS = {name: kind.operator for name, kind in KINDS.items() if kind.operator}

#: The interpolations that stay between the values that they are made of; bicubic and Lanczos overshoot.
INTERPOLATIONS = ("nearest", "bilinear")
_RESIZE_MODES = ("nearest", "linear")
# What converters write beside or instead of the operators above, and the pairs themselves: a grid holds 0 exactly.
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
    """Return whether a tensor cannot hold negative values, because of the activation that it comes from.

    Looks through pooling, padding, concatenation, upsampling, dropout and movement of data.
    """
    return tensor in graph.once(_never_negative)


def _never_negative(graph: ModelGraph) -> frozenset[str]:
    found: set[str] = set()
    for node in graph.nodes:
        kept = _keeps(node) and bool(node.inputs) and found.issuperset(node.inputs)
        if kept or _makes(node):
            found.update(node.outputs)
    return frozenset(found)


def _makes(node: Node) -> bool:
    """Only where the activation comes last: a recurrent layer multiplies with it, one of the user's own may too."""
    last = is_activation(node) or is_convolution(node) or node.is_a(*MATRIX_PRODUCTS)
    return last and not node.opaque and activation_name(node) in MAKES


def _keeps(node: Node) -> bool:
    if node.opaque or not (vanishes(node) or node.is_a(*KEEPS) or pads_with_zeros(node)):
        return False
    if node.settings.get("interpolation", "nearest") not in INTERPOLATIONS:
        return False
    return not node.settings.get("joins_constants")


def makes_never_negative(operator: str) -> bool:
    """Return whether no result of an ONNX operator is negative; of a `Clip` only with a minimum from 0 on.

    Args:
        operator: Its type, such as `Relu`.
    """
    return operator in _MAKING_OPERATORS


def keeps_never_negative(operator: str, mode: str = "") -> bool:
    """Return whether no result of an ONNX operator is negative where none of its values is.

    Args:
        operator: Its type, such as `MaxPool`.
        mode: How a `Resize` interpolates; "" for the default.
    """
    if operator == "Resize":
        return (mode or "nearest") in _RESIZE_MODES
    return operator in _KEEPING_OPERATORS


def read_by(operator: str, inputs: Collection[str]) -> list[str]:
    """Return the inputs of an ONNX operator that hold values, not sizes, axes or scales.

    Args:
        operator: Its type.
        inputs: The names of its inputs; "" for one that is left out.
    """
    names = list(inputs)
    if operator == "Concat":
        return names
    return names[:1] + ([names[2]] if operator == "Pad" and len(names) > 2 and names[2] else [])
