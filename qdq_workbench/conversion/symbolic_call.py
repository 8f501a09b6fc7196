"""Putting a copied layer into the graph of a new model.

A layer's `__call__` looks at its arguments in many ways that cannot matter when a layer of Keras's own is put where
its source was: on one tensor or a list of them, without masks, in the layer's own precision. Such a layer is built and
connected directly, which takes a third of the time. All others are called.
"""

from __future__ import annotations

from typing import Any

import keras

from qdq_workbench.graph_builder import carries_mask
from qdq_workbench.wrappers import BaseQuantizeWrapper

_KNOWN = ("keras.", "qdq_workbench.wrappers.")
_CALLS = (keras.layers.Layer.__call__, BaseQuantizeWrapper.__call__)


def connect(operation: Any, args: tuple[Any, ...], kwargs: dict[str, Any], *, gives_masks: bool = False) -> Any:
    """Return the symbolic outputs of an operation, and record the call in the graph as calling it does.

    Args:
        operation: A layer or an operation, built or not.
        args: Its positional arguments.
        kwargs: Its keyword arguments.
        gives_masks: Whether its outputs carry masks though its inputs need not.
    """
    inputs = args[0] if len(args) == 1 and isinstance(args[0], list) else list(args)
    further = len(args) != 1 or any(value is not None for value in kwargs.values())
    if further or gives_masks or not _is_plain(operation) or not all(_fits(x, operation) for x in inputs):
        return operation(*args, **kwargs)
    if not operation.built:
        shapes = [tuple(tensor.shape) for tensor in inputs]
        operation.build(shapes if isinstance(args[0], list) else shapes[0])
        operation.built = True
    if isinstance(operation, BaseQuantizeWrapper):
        kwargs = {}  # a wrapper has no arguments of its own for those of its layer
    return keras.Operation.symbolic_call(operation, *args, **kwargs)


def _is_plain(operation: Any) -> bool:
    """Return whether a layer is called as all layers are, and computes in the precision of its variables."""
    kind = type(operation)
    if not isinstance(operation, keras.layers.Layer) or isinstance(operation, keras.Model):
        return False
    if not kind.__module__.startswith(_KNOWN) or kind.__call__ not in _CALLS:
        return False
    if kind.symbolic_call is not keras.layers.Layer.symbolic_call or operation.activity_regularizer is not None:
        return False
    return bool(operation.compute_dtype == operation.variable_dtype)


def _fits(tensor: Any, operation: Any) -> bool:
    """Return whether a layer takes a tensor as it is."""
    if not isinstance(tensor, keras.KerasTensor) or carries_mask(tensor):
        return False
    return bool(tensor.dtype == operation.input_dtype or "float" not in tensor.dtype or not operation.autocast)
