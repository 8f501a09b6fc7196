"""Building copies of layers without computing initial values for their variables, which get the source's anyway.

A copied layer would draw its kernel at random, to be overwritten at once: for large layers that costs more than
everything else. Keras knows variables whose values come later: those created in a `StatelessScope` get them when it
ends. Here these are the source's values. TensorFlow lets variables share the memory of a value until one changes.

This file relies on two attributes of a Keras variable that are not public: `_value`, None until there is a value, and
`_initializer`, the function that makes it. A variable without them is assigned by the caller.

Where giving values fails, as for want of memory, Keras keeps its list of variables that wait, and every later scope of
the process fails with those that have their value: "is already initialized". So the list is then worked off.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import keras
import tensorflow as tf

from qdq_workbench.graph_builder import inner_layers

_KNOWN = ("keras.", "qdq_workbench.wrappers.")


class LateVariables:
    """Remembers which layer is a copy of which, and gives the copies' variables their values when they are built.

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
        # Beside its identity each copy is kept itself: another layer could get the identity of one that is gone.
        self._sources: dict[int, tuple[Any, Any]] = {}
        self._finished: dict[int, Any] = {}

    def copied(self, source: Any, copy: Any) -> None:
        """Remember that a layer not built yet is a copy of a built one.

        Args:
            source: The layer whose values the copy will have.
            copy: The copy.
        """
        self._sources[id(copy)] = copy, source

    def has_values(self, copy: Any) -> bool:
        """Return whether the variables of a copy started from its source's."""
        return id(copy) in self._finished

    @contextlib.contextmanager
    def building(self, operation: Any) -> Iterator[None]:
        """A scope in which a copy, or a wrapper of one, is built.

        Layers of the user's own are built as always: their `build` may want values.
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
        """Initialize the variables of a copy with the values of its source."""
        pairs = list(zip(copy.variables, source.variables, strict=False))
        if len(pairs) != len(copy.variables) or any(map(_waits, source.variables)):
            return []
        self._finished[id(copy)] = copy
        return [_Start(ours, theirs) for ours, theirs in pairs]


class _Start:
    """One variable that starts from another's value when the scope in which it was made ends."""

    def __init__(self, variable: Any, source: Any) -> None:
        self._variable, self._source = variable, source
        self._waited = _waits(variable)
        self._trainable = variable.trainable
        if self._waited:
            # What TensorFlow's variable is created with decides whether gradients are ever recorded for it.
            variable.trainable = bool(getattr(source.value, "trainable", variable.trainable))
            variable._initializer = _value_of(source)  # noqa: SLF001 - see above

    def finish(self) -> None:
        """Undo what was needed at the start; a variable that had a value before, such as a seed, gets the other's."""
        self._variable.trainable = self._trainable
        if not self._waited:
            self._variable.assign(self._source)


def _is_known(operation: Any) -> bool:
    """Return whether a layer and all layers in it are Keras's own, or wrappers, whose variables may wait for values.

    Those in which a recurrent layer keeps its state from batch to batch may not: it makes them of values.
    """
    if not isinstance(operation, keras.layers.Layer):
        return False
    layers = (operation, *inner_layers(operation))
    return all(type(x).__module__.startswith(_KNOWN) and not getattr(x, "stateful", False) for x in layers)


def _waits(variable: Any) -> bool:
    """Return whether a variable has no value yet and Keras knows how to give it one."""
    return getattr(variable, "_value", variable) is None and callable(getattr(variable, "_initializer", None))


def _discard_waiting(variables: list[Any]) -> None:
    """Initialize the variables of a discarded layer with anything, after which Keras drops them."""
    for variable in variables:
        variable._value, variable._initializer = None, _nothing  # noqa: SLF001 - see above
    if variables:
        with keras.StatelessScope():
            pass


def _nothing(shape: Any, dtype: Any = None) -> Any:  # noqa: ARG001 - what Keras calls it with
    return tf.zeros((), dtype)


def _value_of(source: Any) -> Callable[..., Any]:
    def initializer(shape: Any, dtype: Any = None) -> Any:  # noqa: ARG001 - what Keras calls it with
        value = tf.convert_to_tensor(source.value)
        return value if dtype is None or value.dtype == dtype else tf.cast(value, dtype)

    return initializer
