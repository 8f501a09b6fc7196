"""Keras's layer classes by their names in the table of kinds."""

from __future__ import annotations

import functools
from typing import Any

import keras


@functools.cache
def keras_layers(names: tuple[str, ...]) -> tuple[Any, ...]:
    """Return Keras's layer classes of some names, for `isinstance` or, without subclasses, `type(layer) in ...`."""
    # By the names of the classes: Keras exports some under others, such as `GroupQueryAttention`.
    classes = {kind.__name__: kind for kind in vars(keras.layers).values() if isinstance(kind, type)}
    return tuple(classes[name] for name in names if name in classes)
