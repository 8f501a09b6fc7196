"""Running the Python code of a composite layer on symbolic tensors of Keras, inside a graph of TensorFlow.

Keras's symbolic tensors record which layers and operations are called on them, but have no sizes to compute with: a
causal mask of `ops.shape(x)[1]` steps cannot be created from them. So an open size is a scalar of a TensorFlow graph
here, and so is the value of every variable that the code reads directly. The operations on them stay in that graph,
from which `size_steps` takes them.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import importlib
import math
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import keras
import tensorflow as tf

from qdq_workbench.graph_builder.between_layers import SizedReshape

_LOCAL = threading.local()


@dataclasses.dataclass
class TraceScope:
    """The sizes and variables that the code of a layer read while it ran.

    Args:
        sizes: The scalar of every open size that was read: tensor, axis, scalar.
        variables: The variables that were read, each with the tensor that represents its value.
    """

    sizes: list[tuple[Any, int, Any]] = dataclasses.field(default_factory=list)
    variables: list[tuple[Any, Any]] = dataclasses.field(default_factory=list)

    def size(self, tensor: Any, axis: int) -> Any:
        """Return the scalar that represents an open size of a symbolic tensor."""
        for known, known_axis, scalar in self.sizes:
            if known is tensor and known_axis == axis:
                return scalar
        scalar = tf.compat.v1.placeholder(tf.int32, ())
        self.sizes.append((tensor, axis, scalar))
        return scalar

    def value(self, variable: Any) -> Any:
        """Return the tensor that represents the value of a variable."""
        for known, tensor in self.variables:
            if known is variable:
                return tensor
        tensor = tf.compat.v1.placeholder(keras.backend.standardize_dtype(variable.dtype), tuple(variable.shape))
        self.variables.append((variable, tensor))
        return tensor


class ReadsVariables(keras.StatelessScope):
    """A scope in which a read of a variable returns the tensor that represents it in a trace."""

    def __init__(self, trace: TraceScope) -> None:
        super().__init__(collect_losses=True, initialize_variables=False)
        self._trace = trace

    def get_current_value(self, variable: Any) -> Any:
        """Return the tensor that represents the value of a variable."""
        return self._trace.value(variable)

    @property
    def changes(self) -> str:
        """The side effects of the code, as a clause; empty for none."""
        if self.losses:
            return "it adds to the loss"
        if self.state_mapping:
            return "it changes variables by itself, as for random numbers or counters; let a layer inside do so"
        return ""


class Runner(keras.layers.Layer):
    """Calls a function like a layer's `call`: with the layer's dtype policy, and inputs cast by it.

    Args:
        layer: The layer.
        function: The function, of a list of tensors.
        training: The mode of the model, which the layers inside follow if they are not told; None for none.
    """

    def __init__(self, layer: Any, function: Callable[[Sequence[Any]], Any], training: bool | None = None) -> None:
        super().__init__(dtype=layer.dtype_policy, autocast=layer.autocast)
        self._convert_input_args = layer._convert_input_args
        self._function, self._training = function, training
        self.result: Any = None
        self.built = True

    def call(self, tensors: Any) -> Any:
        """Call the function."""
        if self._training is not None:
            self._get_call_context().training = self._training
        self.result = self._function(tensors)
        return []  # returned tensors would record this call in their history

    def compute_output_spec(self, tensors: Any) -> Any:
        """Call the function; Keras calls this method if tensors are symbolic."""
        return self.call(tensors)


@contextlib.contextmanager
def open_sizes(trace: TraceScope) -> Iterator[None]:
    """Let `keras.ops.shape` return scalars of a trace for open sizes, in this thread, and `reshape` accept them."""
    before = getattr(_LOCAL, "trace", None)
    _LOCAL.trace = trace
    _REPLACED.begin()
    try:
        yield
    finally:
        _REPLACED.end()
        _LOCAL.trace = before


class _Replaced:
    """Functions of Keras that are replaced while any thread traces a layer."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._users = 0
        self._originals: list[tuple[Any, str, Any]] = []

    def begin(self) -> None:
        with self._lock:
            self._users += 1
            if self._users > 1:
                return
            # Custom layers look functions up in the first module, Keras's own layers in the second.
            for module in (keras.ops, importlib.import_module("keras.src.ops")):
                for name, replacement in (("shape", _shape), ("reshape", _reshape)):
                    original = getattr(module, name)
                    self._originals.append((module, name, original))
                    setattr(module, name, functools.partial(replacement, original))

    def end(self) -> None:
        with self._lock:
            self._users -= 1
            while not self._users and self._originals:
                setattr(*self._originals.pop())


_REPLACED = _Replaced()


def _shape(original: Callable[[Any], Any], x: Any) -> Any:
    """Return the shape of a tensor; open sizes of a symbolic one are scalars of the trace."""
    trace = getattr(_LOCAL, "trace", None)
    if trace is None or not isinstance(x, keras.KerasTensor):
        return original(x)
    return tuple(trace.size(x, axis) if size is None else size for axis, size in enumerate(x.shape))


def _reshape(original: Callable[..., Any], x: Any, newshape: Any) -> Any:
    """Reshape a symbolic tensor to sizes some of which are scalars of the trace."""
    trace = getattr(_LOCAL, "trace", None)
    if trace is None or not isinstance(x, keras.KerasTensor) or not isinstance(newshape, (list, tuple)):
        return original(x, newshape)
    # Here None stands for a scalar of the trace, and -1 for a size that follows from the others.
    sizes = [size if isinstance(size, int) else -1 if size is None else None for size in newshape]
    if None not in sizes:
        return original(x, newshape)
    # A single unknown size follows from the others, so a plain reshape does.
    if sizes.count(None) == 1 and -1 not in sizes:
        return original(x, [-1 if size is None else size for size in sizes])
    known = _rest_of(x, newshape, sizes, trace)
    if known is not None:
        return original(x, known)
    target = [None if size == -1 else size for size in sizes]
    return SizedReshape(target, name="reshape")(x, sizes=tf.stack(list(newshape)))


def _rest_of(x: Any, newshape: Sequence[Any], sizes: list[int | None], trace: TraceScope) -> list[int] | None:
    """Return the new shape if the batch size stays and the size `-1` follows from the others; else None."""
    known = [size for size in sizes if size is not None and size != -1]
    if sizes[0] is not None or sizes.count(None) > 1 or None in x.shape[1:]:
        return None
    if newshape[0] is not trace.size(x, 0):
        return None
    rest = math.prod(x.shape[1:]) // math.prod(known)
    return [-1, *(rest if size == -1 else size for size in sizes[1:] if size is not None)]
