"""Quantized weights that are stored from batch to batch, within one call of `predict` or `evaluate`.

Before every batch the weights are read. A tensor that TensorFlow read from a variable shares the variable's memory,
and while the tensor exists nothing writes to that memory: an operation that changes the variable first gives it other
memory. So if the memory of a weight is still that of the tensor held here, the weight has the values from which the
stored ones were computed, whatever has assigned it in between. Changes by a graph itself, before it reads the weight,
are not visible here; `GraphSoFar` detects them.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from qdq_workbench._interrupts import interrupts_held
from qdq_workbench.wrappers.graph_so_far import GraphSoFar
from qdq_workbench.wrappers.weight_quantizers import quantized_weight


class KeptWeights:
    """The quantized weights of a model, stored while a call of `predict` or `evaluate` runs.

    Args:
        wrappers: Wrappers of layers. Only weights whose quantized values depend on nothing else are stored.
    """

    def __init__(self, wrappers: Iterable[Any]) -> None:
        self._weights: list[tuple[Any, Any]] = []
        self._places: dict[tuple[int, str], int] = {}
        self._wrappers = tuple(wrappers)  # keeps the ids in `_places` from being reused
        for wrapper in self._wrappers:
            for name, variable, spec in wrapper.weights_by_values():
                # The variables in `_kept` are float32.
                if variable.dtype == "float32" and variable.shape.num_elements():
                    self._places[id(wrapper), name] = len(self._weights)
                    self._weights.append((variable, spec))
        # Of open shape, so that `_forget` can assign an empty tensor, which frees the memory of the values.
        empty = tf.TensorShape(None)
        self._kept = [tf.Variable(tf.zeros([0]), trainable=False, shape=empty) for _ in self._weights]
        self._held: list[Any] | None = None  # the values from which the stored ones were computed
        self._read: Any = None
        self._store: Any = None
        self._users = 0
        self._lock = threading.RLock()
        self._here = threading.local()

    @property
    def used_here(self) -> bool:
        """Whether this thread is inside `in_use`."""
        return bool(getattr(self._here, "uses", 0))

    @contextlib.contextmanager
    def in_use(self) -> Iterator[None]:
        """Store weights inside; the last user discards them, because they take as much memory as the model."""
        uses = getattr(self._here, "uses", 0)
        try:
            with self._lock:
                self._users += 1
            self._here.uses = uses + 1
            yield
        finally:
            self._here.uses = uses
            with self._lock:
                self._users -= 1
                if not self._users:
                    self._forget()

    def refresh(self) -> None:
        """Quantize the weights, unless the stored ones were computed from their current values."""
        with self._lock:
            if self._read is None:
                self._trace()
            present = self._read()
            if self._held is not None and all(map(_shares_memory, present, self._held)):
                return
            self._held = None  # after an error or Ctrl-C none are valid
            self._store(*present)
            self._held = present

    def value(self, wrapper: Any, name: str, graph: GraphSoFar) -> Any:
        """Return the quantized weight, in a graph that is called after `refresh`; None if it is not stored.

        None also if the graph that is being traced may have written the weight.
        """
        place = self._places.get((id(wrapper), name))
        if place is None or graph.may_have_written(self._weights[place][0]):
            return None
        value = self._kept[place].read_value()
        # Layers need the static shape, which a variable of open shape does not have.
        value.set_shape(self._weights[place][0].shape)
        return value

    @interrupts_held()
    def _trace(self) -> None:
        """Trace the functions that read and quantize the weights."""

        def read() -> list[Any]:
            return [tf.convert_to_tensor(variable.value) for variable, _ in self._weights]

        def store(*values: Any) -> None:
            for kept, value, (_, spec) in zip(self._kept, values, self._weights, strict=True):
                kept.assign(quantized_weight(value, spec))

        shapes = [tf.TensorSpec(variable.shape, tf.float32) for variable, _ in self._weights]
        self._store = tf.function(store, autograph=False).get_concrete_function(*shapes)
        self._read = tf.function(read, autograph=False).get_concrete_function()

    def _forget(self) -> None:
        """Release the memory."""
        self._held = None
        for kept in self._kept:
            kept.assign(tf.zeros([0]))


def _shares_memory(one: Any, other: Any) -> bool:
    return _address(one) == _address(other)


def _address(tensor: Any) -> int:
    # `tensor.numpy()` would copy; the memoryview is on the memory of TensorFlow itself.
    address: int = np.asarray(memoryview(tensor)).__array_interface__["data"][0]
    return address
