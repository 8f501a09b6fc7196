"""Functional models of any depth: Keras visits a new model recursively, one nested Python call per operation.

Python allows a thousand nested calls by default. A model can exceed that once its nested models are flattened and a
layer is replaced by up to three. The limit is global to the process, so it is raised only while a model is built, and
restored when the last thread that needs it is done.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import keras

from qdq_workbench._interrupts import interrupts_held

_OTHER_CALLS = 1000  # for the callers, and the calls inside an operation; Python's default limit


class _Limit:
    """The recursion limit of the process: the maximum of what the threads that build models need."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._needs: list[int] = []
        self._usual = 0

    def raise_to(self, needed: int) -> None:
        with self._lock:
            if not self._needs:
                self._usual = sys.getrecursionlimit()
            self._needs.append(needed)
            self._apply()

    def give_back(self, needed: int) -> None:
        with self._lock:
            self._needs.remove(needed)
            self._apply()

    def _apply(self) -> None:
        limit = max([self._usual, *self._needs])
        if limit != sys.getrecursionlimit():
            sys.setrecursionlimit(limit)


_LIMIT = _Limit()


@contextmanager
def raised_recursion_limit(outputs: Any) -> Iterator[None]:
    """Raise the recursion limit to the depth of a new model with these outputs; restore it afterwards."""
    with interrupts_held():
        needed = _operations_behind(outputs) + _OTHER_CALLS
        _LIMIT.raise_to(needed)
        try:
            yield
        finally:
            _LIMIT.give_back(needed)


def functional_model(inputs: Any, outputs: Any, *, model_class: Callable[..., Any] = keras.Model, **kwargs: Any) -> Any:
    """Return a functional model of any depth; `model_class` builds it from inputs, outputs and `kwargs`.

    Example:
        >>> image = keras.Input((2,), name="image")
        >>> functional_model(image, keras.layers.ReLU(name="relu")(image), name="small").name
        'small'
    """
    for tensor in keras.tree.flatten(inputs):
        _have_a_reader(tensor)
    with raised_recursion_limit(outputs):
        return model_class(inputs, outputs, **kwargs)


def _have_a_reader(tensor: Any) -> None:
    """Let a layer that is in no model read an input that nothing reads: Keras before 3.14 refuses one."""
    operation = tensor._keras_history.operation  # noqa: SLF001 - as Keras itself
    if operation is not None and not operation._outbound_nodes:  # noqa: SLF001 - as Keras itself
        keras.layers.Identity(name="reader_of_an_input")(tensor)


def _operations_behind(outputs: Any) -> int:
    """Return the number of operation calls that symbolic tensors depend on."""
    seen: set[int] = set()
    waiting = list(keras.tree.flatten(outputs))
    while waiting:
        history = getattr(waiting.pop(), "_keras_history", None)  # Keras rejects a value that is no symbolic tensor
        if history is None or history.operation is None:
            continue
        node = history.operation._inbound_nodes[history.node_index]  # noqa: SLF001 - Keras itself visits these nodes
        if id(node) not in seen:
            seen.add(id(node))
            waiting.extend(node.input_tensors)
    return len(seen)
