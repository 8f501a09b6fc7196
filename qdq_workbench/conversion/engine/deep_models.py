"""Making functional models of any depth: Keras walks through a new model with one Python call per operation.

Python allows a thousand nested calls. A model that the user could make may be deeper once its nested models are laid
flat and up to three layers stand for one. The limit belongs to the whole process, so it is raised only while a model is
made, and goes back to the user's when the last thread that needs it is done.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import keras

from qdq_workbench._interrupts import interrupts_held

_OTHER_CALLS = 1000  # what calls us, and what an operation itself calls; Python's own limit


class _Limit:
    """The highest limit that any thread inside needs."""

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
    """Raise the recursion limit to the depth of a new model with these outputs; restore it afterwards.

    Args:
        outputs: The symbolic outputs, nested in any way.
    """
    with interrupts_held():
        needed = _operations_behind(outputs) + _OTHER_CALLS
        _LIMIT.raise_to(needed)
        try:
            yield
        finally:
            _LIMIT.give_back(needed)


def functional_model(inputs: Any, outputs: Any, *, model_class: Callable[..., Any] = keras.Model, **kwargs: Any) -> Any:
    """Return a functional model of any depth.

    Args:
        inputs: The symbolic inputs.
        outputs: The symbolic outputs.
        model_class: What makes the model from both.
        **kwargs: What else it takes, such as a name.

    Example:
        >>> image = keras.Input((2,), name="image")
        >>> functional_model(image, keras.layers.ReLU(name="relu")(image), name="small").name
        'small'
    """
    with raised_recursion_limit(outputs):
        return model_class(inputs, outputs, **kwargs)


def _operations_behind(outputs: Any) -> int:
    """Return how many calls of operations symbolic tensors are made by."""
    seen: set[int] = set()
    waiting = list(keras.tree.flatten(outputs))
    while waiting:
        history = getattr(waiting.pop(), "_keras_history", None)  # Keras refuses what is no symbolic tensor
        if history is None or history.operation is None:
            continue
        node = history.operation._inbound_nodes[history.node_index]  # noqa: SLF001 - what Keras itself walks through
        if id(node) not in seen:
            seen.add(id(node))
            waiting.extend(node.input_tensors)
    return len(seen)
