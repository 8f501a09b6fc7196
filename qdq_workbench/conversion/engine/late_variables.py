"""Copies of layers, built without computing initial values that the source's values would replace.

For large layers, drawing a random kernel takes longer than everything else. Variables that are created in a Keras
`StatelessScope` get their initial values when the scope ends; here these are the source's values. TensorFlow variables
share the memory of a value until one of them changes.

This file relies on two private attributes of a Keras variable: `_value`, None until there is a value, and
`_initializer`, the function that computes it. A variable without them is assigned by the caller.

If the initialization fails, for example for lack of memory, Keras keeps its list of waiting variables, and every later
scope of the process fails at those that have a value: "is already initialized". `_discard_waiting` empties the list.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import keras
import tensorflow as tf

from qdq_workbench.graph_builder import inner_layers

_KNOWN = ("keras.", "qdq_workbench.wrappers.", "qdq_workbench.tfmot.")


class LateVariables:
    """Initializes the variables of copied layers with their sources' values when the copies are built.

    Example:
        >>> source = keras.layers.Dense(2, name="source")
        >>> source.build((None, 3))
        >>> late, copy = LateVariables(), keras.layers.Dense(2, name="copy")
        >>> late.copied(source, copy)
        >>> with late.building(copy):
        ...     copy.build((None, 3))
        >>> late.has_values(copy), bool((copy.kernel == source.kernel).numpy().all())
        (True, True)
    """

    def __init__(self) -> None:
        # The copies are stored too, because the id of a deleted object can be reused.
        self._sources: dict[int, tuple[Any, Any]] = {}
        self._finished: dict[int, Any] = {}

    def copied(self, source: Any, copy: Any) -> None:
        """Register an unbuilt layer as the copy of a built one."""
        self._sources[id(copy)] = copy, source

    def has_values(self, copy: Any) -> bool:
        """Return whether the variables of a copy were initialized with its source's values."""
        return id(copy) in self._finished

    @contextlib.contextmanager
    def building(self, operation: Any) -> Iterator[None]:
        """Open the scope in which to build a copy, or a wrapper of one.

        Layers of user classes are built without it, because their `build` may read values.
        """
        if getattr(operation, "built", True) or not _is_known(operation):
            yield
            return
        starts: list[_Start] = []
        waiting: list[Any] = []
        try:
            with keras.StatelessScope():
                yield
                for part in (operation, getattr(operation, "layer", None)):
                    if id(part) in self._sources:
                        starts += self._start(*self._sources[id(part)])
                waiting = [variable for variable in operation.variables if _waits(variable)]
        except BaseException:
            _discard_waiting(waiting)
            raise
        for start in starts:
            start.finish()

    def _start(self, copy: Any, source: Any) -> list[_Start]:
        """Make a source's values the initial values of its copy's variables, if the variables correspond."""
        pairs = list(zip(copy.variables, source.variables, strict=False))
        if len(pairs) != len(copy.variables) or any(map(_waits, source.variables)):
            return []
        self._finished[id(copy)] = copy
        return [_Start(ours, theirs) for ours, theirs in pairs]


class _Start:
    """A variable that gets its source's value when the scope that created it ends."""

    def __init__(self, variable: Any, source: Any) -> None:
        self._variable, self._source = variable, source
        self._waited = _waits(variable)
        self._trainable = variable.trainable
        if self._waited:
            # TensorFlow records gradients only for variables that were created as trainable.
            variable.trainable = bool(getattr(source.value, "trainable", variable.trainable))
            variable._initializer = _value_of(source)  # noqa: SLF001 - see above

    def finish(self) -> None:
        """Restore `trainable`; assign the source's value to a variable that already had one, such as a seed."""
        self._variable.trainable = self._trainable
        if not self._waited:
            self._variable.assign(self._source)


def _is_known(operation: Any) -> bool:
    """Return whether a layer and its inner layers are Keras's own or wrappers, and none of them is stateful.

    A stateful recurrent layer computes its states from values when it is built.
    """
    if not isinstance(operation, keras.layers.Layer):
        return False
    layers = (operation, *inner_layers(operation))
    return all(type(x).__module__.startswith(_KNOWN) and not getattr(x, "stateful", False) for x in layers)


def _waits(variable: Any) -> bool:
    """Return whether a variable has no value yet, but an initializer."""
    return getattr(variable, "_value", variable) is None and callable(getattr(variable, "_initializer", None))


def _discard_waiting(variables: list[Any]) -> None:
    """Initialize the variables of a discarded layer with zeros, so that Keras removes them from its list."""
    for variable in variables:
        variable._value, variable._initializer = None, _nothing  # noqa: SLF001 - see above
    if variables:
        with keras.StatelessScope():
            pass


def _nothing(shape: Any, dtype: Any = None) -> Any:  # noqa: ARG001 - Keras's signature
    # A scalar, whatever the shape: memory may be what is lacking, and nothing reads the variable.
    return tf.zeros((), dtype)


def _value_of(source: Any) -> Callable[..., Any]:
    def initializer(shape: Any, dtype: Any = None) -> Any:  # noqa: ARG001 - Keras's signature
        value = tf.convert_to_tensor(source.value)
        return value if dtype is None or value.dtype == dtype else tf.cast(value, dtype)

    return initializer
