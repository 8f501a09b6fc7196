"""Functions of models, traced once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf


def traced(function: Callable[..., Any], *arguments: Any, autograph: bool = True) -> Callable[..., Any]:
    """Return a function of tensors that is traced at its first call, and again only for other sizes of open axes.

    TensorFlow counts how often functions of one line are traced and called, and warns of "retracing" where a process
    makes one function per model and calls each a few times. Concrete functions are not counted.

    Args:
        function: The function.
        *arguments: Tensors in the structure of its arguments; symbolic ones of Keras leave the size of the batch open.
            What the function is called with is cast to their types.
        autograph: Whether TensorFlow rewrites Python's control flow in the function.
    """
    signature = keras.tree.map_structure(lambda tensor: tf.TensorSpec(tensor.shape, tensor.dtype), arguments)
    # Some layers (TimeDistributed) compute only where they know all sizes but the batch's; and a model that was made
    # for batches of one size computes others as well.
    exact = any(None in spec.shape[1:] or None not in spec.shape[:1] for spec in keras.tree.flatten(signature))
    known: dict[Any, Callable[..., Any]] = {}

    def call(*given: Any) -> Any:
        given = keras.tree.map_structure(lambda tensor, spec: tf.cast(tensor, spec.dtype), given, signature)
        shapes = tuple(tuple(tensor.shape) for tensor in keras.tree.flatten(given)) if exact else ()
        if shapes not in known:
            specs = keras.tree.map_structure(lambda t: tf.TensorSpec(t.shape, t.dtype), given) if exact else signature
            known[shapes] = tf.function(function, autograph=autograph).get_concrete_function(*specs)
        return known[shapes](*given)

    return call
