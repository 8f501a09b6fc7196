"""The names of all classes of layers and operations that Keras has: those that the nodes of a graph can have."""

from __future__ import annotations

import keras


def _below(kind: type) -> set[type]:
    found = set(kind.__subclasses__())
    return found.union(*map(_below, found))


#: Also classes that Keras does not export, such as the operations behind the functions of `keras.ops`. Tests, and the
#: library, define subclasses of their own.
CLASSES = frozenset(kind.__name__ for kind in _below(keras.Operation) if kind.__module__.startswith("keras."))
