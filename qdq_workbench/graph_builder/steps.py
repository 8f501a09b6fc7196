"""The calls that compute a call of a layer or of a model."""

from __future__ import annotations

import dataclasses
from typing import Any

import keras
from keras import tree

from qdq_workbench.graph_builder.between_layers import SizedReshape


class CannotEnterError(Exception):
    """A layer cannot be entered; the text gives the reason."""


@dataclasses.dataclass
class Step:
    """One call that a layer's code makes.

    Args:
        operation: The layer or operation; a variable if the code uses a weight directly.
        args: Positional arguments; tensors are Keras's symbolic ones.
        kwargs: Keyword arguments, likewise.
        outputs: The symbolic tensors that the call produces.
        name: Its name below the layer or model.
        position: The number of the call among those of the operation, in creation order; None to count.
    """

    operation: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    outputs: list[Any]
    name: str = ""
    position: int | None = None


@dataclasses.dataclass(frozen=True)
class Trace:
    """The calls that compute one call of a layer.

    Args:
        inputs: The symbolic tensors that represent the inputs of the layer.
        steps: The calls, in an order in which they can be computed.
        outputs: The symbolic tensors that it returns.
        policy: The dtype policy of the layer.
    """

    inputs: list[Any]
    steps: list[Step]
    outputs: list[Any]
    policy: Any


def unique_tensors(arguments: Any) -> list[Any]:
    """Return the symbolic tensors among the arguments of a call, each once."""
    found: dict[int, Any] = {}
    for leaf in tree.flatten(arguments):
        if isinstance(leaf, keras.KerasTensor):
            found.setdefault(id(leaf), leaf)
    return list(found.values())


def is_made_by_a_trace(operation: Any) -> bool:
    """Return whether an operation is none of the layer's, but represents some of its code."""
    return bool(getattr(operation, "_qdq_transparent", False)) or type(operation) in (
        SizedReshape,
        keras.layers.Softmax,
    )
