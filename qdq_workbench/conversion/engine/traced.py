"""Functions of models as concrete functions of TensorFlow."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf

from qdq_workbench._interrupts import interrupts_held
from qdq_workbench._thread_patches import ThreadPatch


def traced(function: Callable[..., Any], *arguments: Any) -> Callable[..., Any]:
    """Return a function of tensors that is traced at its first call, and once more for other sizes of open axes.

    The arguments of calls are cast to the dtypes of `arguments`, of which Keras's symbolic tensors leave the batch size
    open.

    TensorFlow's "retracing" warning counts traces and calls per line of code, over all models of a process; concrete
    functions are not counted. Autograph is off, as in Keras's own training and prediction, because it takes as long as
    the tracing itself.
    """
    return _Traced(tf.function(function, autograph=False), arguments)


def _call_on_known_steps(usual: Callable[..., Any], layer: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
    # Of an open number of them Keras (3.15) calls the layer inside for as many as there are samples.
    if inputs.shape[1] is None:
        raise ValueError(f"The number of steps that {layer.name!r} reads must be known")
    return usual(layer, inputs, *args, **kwargs)


_KNOWN_STEPS = ThreadPatch(lambda: keras.layers.TimeDistributed, "call", _call_on_known_steps)


class _Traced:
    """The traces of a function.

    If only the batch size is open, one trace serves all sizes. Otherwise the first sizes get their own trace, and all
    others share one with open axes if possible. If not, all sizes get their own: some layers (TimeDistributed) need
    all sizes but the batch's, and a model for a fixed batch size also computes other batch sizes.
    """

    def __init__(self, function: Any, arguments: tuple[Any, ...]) -> None:
        self._function = function
        self._signature = keras.tree.map_structure(lambda x: tf.TensorSpec(x.shape, x.dtype), arguments)
        specs = keras.tree.flatten(self._signature)
        self._exact = any(None in spec.shape[1:] or None not in spec.shape[:1] for spec in specs)
        self._known: dict[Any, Any] = {}
        self._open: Any = None
        self._may_open = True

    @interrupts_held()
    def __call__(self, *given: Any) -> Any:
        given = keras.tree.map_structure(lambda tensor, spec: tf.cast(tensor, spec.dtype), given, self._signature)
        return self._trace(given)(*given)

    def _trace(self, given: Any) -> Any:
        shapes = tuple(tuple(tensor.shape) for tensor in keras.tree.flatten(given)) if self._exact else ()
        if shapes in self._known:
            return self._known[shapes]
        if self._known and self._may_open and self._leaves_open(shapes):
            try:
                with _KNOWN_STEPS:
                    self._open = self._open or self._function.get_concrete_function(*self._signature)
            except Exception:  # noqa: BLE001 - a layer that needs the sizes may raise anything
                self._may_open = False
            else:
                return self._open
        specs = keras.tree.map_structure(lambda x: tf.TensorSpec(x.shape, x.dtype), given)
        self._known[shapes] = self._function.get_concrete_function(*(specs if self._exact else self._signature))
        return self._known[shapes]

    def _leaves_open(self, shapes: tuple[Any, ...]) -> bool:
        """Return whether the signature is compatible with tensors of these shapes."""
        specs = keras.tree.flatten(self._signature)
        return all(spec.shape.is_compatible_with(shape) for spec, shape in zip(specs, shapes, strict=True))
