"""What a value contains, in a form to compare: whether code that read it would compute the same again."""

from __future__ import annotations

import hashlib
import weakref
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import tensorflow as tf

_PLAIN = (bool, int, float, complex, str, bytes, type(None))


def content(value: Any, others: Callable[[Any], Any] | None = None) -> Any:
    """Return a form of a value that equals the form of another one if both contain the same.

    Containers are entered. Arrays are compared by shape, dtype and numbers; symbolic tensors by their class, and in
    containers not at all: a layer may record there what it has computed. `others` returns the form of all other
    objects, and with it constant tensors are compared by their numbers; by default such an object, or constant tensor,
    equals itself alone. The forms refer to them weakly.
    """
    if isinstance(value, _PLAIN):
        return repr(value)
    if isinstance(value, (list, tuple)):
        return type(value).__name__, tuple(content(item, others) for item in value if not _is_symbolic(item))
    if isinstance(value, (set, frozenset)):
        return type(value).__name__, frozenset(content(item, others) for item in value)
    if isinstance(value, dict):
        items = ((key, item) for key, item in value.items() if not _is_symbolic(item))
        return type(value).__name__, tuple((content(key), content(item, others)) for key, item in items)
    if isinstance(value, (np.ndarray, np.generic)):
        return _numbers(np.asarray(value), others)
    if _is_constant(value):
        # It cannot change, so by default its numbers need not be read; those of some types cannot be.
        has_numbers = others is not None and value.dtype not in (tf.variant, tf.resource)
        return _numbers(np.asarray(value), others) if has_numbers else _Same(value)
    if _is_symbolic(value):
        return type(value)
    return _Same(value) if others is None else others(value)


def _is_constant(value: Any) -> bool:
    """Return whether a value is an eager tensor; variables are read anew wherever they are used."""
    return isinstance(value, tf.Tensor) and not isinstance(value, keras.Variable) and hasattr(value, "numpy")


def _is_symbolic(value: Any) -> bool:
    return isinstance(value, keras.KerasTensor) or (isinstance(value, tf.Tensor) and not _is_constant(value))


def _numbers(array: np.ndarray, others: Callable[[Any], Any] | None) -> Any:
    if array.dtype.hasobject:  # its bytes are addresses
        return array.shape, content(array.tolist(), others)
    contiguous: Any = np.ascontiguousarray(array)  # hashed without a copy
    return array.shape, str(array.dtype), hashlib.sha256(contiguous).digest()


class _Same:
    """Equal to another form of the very same object, while that exists."""

    def __init__(self, value: Any) -> None:
        self._written = ""
        try:
            # Not a strong reference: a method of a layer, held by that layer, would keep it alive.
            self._object: Callable[[], Any] = weakref.ref(value)
        except TypeError:
            self._object, self._written = _nothing, repr(value)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, _Same):
            return False
        value = self._object()
        alike = value is not None or bool(self._written)
        return alike and value is other._object() and self._written == other._written

    def __hash__(self) -> int:
        return 0  # equality decides: few objects are in sets of an attribute


def _nothing() -> None:
    return None
