"""The arguments of a layer's call, any of which may hold tensors."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Any

import keras
import numpy as np
from keras import tree


@dataclasses.dataclass(frozen=True)
class CallArguments:
    """The arguments of one call of a layer.

    Args:
        first: The first argument: a tensor or a nest of tensors.
        args: The other positional arguments.
        kwargs: The keyword arguments.
    """

    first: Any
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = dataclasses.field(default_factory=dict)

    @classmethod
    def of_shapes(cls, shapes: Any) -> CallArguments:
        """Return a call with one argument, of which only the shapes are known."""
        several = isinstance(shapes, (list, tuple)) and bool(shapes) and isinstance(shapes[0], (list, tuple))
        return cls([keras.KerasTensor(shape) for shape in shapes] if several else keras.KerasTensor(shapes))

    @property
    def has_further_tensors(self) -> bool:
        """Whether other arguments than the first hold tensors."""
        return holds_tensors((self.args, self.kwargs))

    def build(self, layer: Any) -> None:
        """Build a layer by calling it on symbolic tensors like these."""
        first, args, kwargs = tree.map_structure(_symbolic, (self.first, self.args, self.kwargs))
        layer(first, *args, **kwargs)

    def quantizable(self) -> list[Any]:
        """Return the tensors that a wrapper quantizes by itself: those of floats, except masks and initial states."""
        return [leaf for leaf in tree.flatten(self._values()) if _is_number(leaf)]

    def replaced(self, tensors: Iterable[Any]) -> CallArguments:
        """Return the call with other tensors in place of the quantizable ones, in the order of `quantizable`."""
        rest = iter(tensors)
        first, args, kwargs = tree.map_structure(lambda leaf: next(rest) if _is_number(leaf) else leaf, self._values())
        return CallArguments(first, args, {**self.kwargs, **kwargs})

    def _values(self) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
        """Return the arguments without masks and initial states."""
        named = {k: v for k, v in self.kwargs.items() if k != "initial_state" and not k.endswith("mask")}
        return self.first, self.args, named


def holds_tensors(value: Any) -> bool:
    """Return whether an argument holds tensors."""
    return any(_is_tensor(leaf) for leaf in tree.flatten(value))


def _is_tensor(value: Any) -> bool:
    # Keras converts the arrays among the arguments of a call to tensors.
    return isinstance(value, (keras.KerasTensor, np.ndarray)) or bool(keras.ops.is_tensor(value))


def _is_number(value: Any) -> bool:
    return _is_tensor(value) and "float" in keras.backend.standardize_dtype(value.dtype)


def _symbolic(value: Any) -> Any:
    return keras.KerasTensor(value.shape, dtype=value.dtype) if _is_tensor(value) else value
