"""Running the Python code of a composite layer on symbolic tensors of Keras, inside a graph of TensorFlow.

Keras's symbolic tensors record which layers and operations are called on them, but have no sizes to compute with: a
causal mask of `ops.shape(x)[1]` steps cannot be created from them. So an open size is a scalar of a TensorFlow graph
here, and so is the value of every variable that the code reads directly. The operations on them stay in that graph,
from which `size_steps` takes them.
"""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
import inspect
import math
import string
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import keras
import tensorflow as tf

from qdq_workbench._thread_patches import ThreadPatch
from qdq_workbench.graph_builder.between_layers import SizedReshape
from qdq_workbench.graph_builder.inlined import recorded_node
from qdq_workbench.graph_builder.sized_calls import SIZED_FUNCTIONS, sized_call

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

    def axis_of(self, scalar: Any) -> int | None:
        """Return the axis whose open size a scalar represents; None if it is anything else."""
        return next((axis for _, axis, known in self.sizes if known is scalar), None)

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
    try:
        with contextlib.ExitStack() as stack:
            for patch in _PATCHES:
                stack.enter_context(patch)
            yield
    finally:
        _LOCAL.trace = before


def _shape(original: Callable[[Any], Any], x: Any) -> Any:
    """Return the shape of a tensor; open sizes of a symbolic one are scalars of the trace."""
    if not isinstance(x, keras.KerasTensor):
        return original(x)
    return tuple(_LOCAL.trace.size(x, axis) if size is None else size for axis, size in enumerate(x.shape))


def _sized(name: str) -> Callable[..., Any]:
    """Return the replacement of a function that may be called with scalars of the trace for sizes."""

    def call(original: Callable[..., Any], x: Any, *args: Any, **kwargs: Any) -> Any:
        if not isinstance(x, keras.KerasTensor):
            return original(x, *args, **kwargs)
        given = inspect.signature(original).bind(x, *args, **kwargs)
        given.apply_defaults()
        found = sized_call(name, x, given.args[1:])
        return original(x, *args, **kwargs) if found is None else found

    return call


def _einsum(original: Callable[..., Any], subscripts: str, *operands: Any, **settings: Any) -> Any:
    """Compute an einsum; of symbolic tensors Keras (3.15) takes axes by small letters only."""
    capitals = sorted({letter for letter in subscripts if letter.isupper()})
    if capitals:
        free = [letter for letter in string.ascii_lowercase if letter not in subscripts]
        small = dict(zip(capitals, free, strict=False))
        subscripts = "".join(small.get(letter, letter) for letter in subscripts)
    return original(subscripts, *operands, **settings)


def _reshape(original: Callable[..., Any], x: Any, newshape: Any) -> Any:
    """Reshape a symbolic tensor to sizes some of which are scalars of the trace."""
    if not isinstance(x, keras.KerasTensor) or not isinstance(newshape, (list, tuple)):
        return original(x, newshape)
    # Here None stands for a scalar of the trace, and -1 for a size that follows from the others.
    sizes = [size if isinstance(size, int) else -1 if size is None else None for size in newshape]
    if None not in sizes:
        return original(x, newshape)
    # A single unknown size follows from the others, so a plain reshape does.
    if sizes.count(None) == 1 and -1 not in sizes:
        return original(x, [-1 if size is None else size for size in sizes])
    rest = _rest_of(x, newshape, sizes)
    if rest is not None:
        newshape, sizes = ([rest if known == -1 else size for size, known in zip(each, sizes, strict=True)]
                           for each in (newshape, sizes))  # fmt: skip
        if sizes.count(None) == 1:
            return original(x, [-1 if size is None else size for size in sizes])
    target = [None if size == -1 else size for size in sizes]
    return SizedReshape(target, name="reshape")(x, sizes=tf.stack(list(newshape)))


def _rest_of(x: Any, newshape: Sequence[Any], sizes: list[int | None]) -> int | None:
    """Return the size `-1` if the open axes of a tensor stay; None if that is not known.

    They do if the scalars are sizes of these axes, of the tensor or of another one: `q`, `k` and `q * k` have as many
    samples and steps.
    """
    stay = [axis for axis, size in enumerate(x.shape) if size is None]
    scalars = [size for size, known in zip(newshape, sizes, strict=True) if known is None]
    if -1 not in sizes or [_LOCAL.trace.axis_of(scalar) for scalar in scalars] != stay:
        return None
    known = math.prod(size for size in sizes if size is not None and size != -1)
    return math.prod(size for size in x.shape if size is not None) // known if known else None


def _patches() -> Iterator[ThreadPatch]:
    # Custom layers look functions up in the first module, Keras's own layers in the second.
    for owner in (lambda: keras.ops, lambda: importlib.import_module("keras.src.ops")):
        for name, replacement in (("shape", _shape), ("reshape", _reshape), ("einsum", _einsum)):
            yield ThreadPatch(owner, name, replacement)
        for name in SIZED_FUNCTIONS:
            yield ThreadPatch(owner, name, _sized(name))
    layers = importlib.import_module("keras.src.layers.layer")
    if hasattr(layers, "Node"):  # before Keras 3.13, `symbolic_call` itself records the call
        yield ThreadPatch(lambda: layers, "Node", recorded_node)


_PATCHES = tuple(_patches())
