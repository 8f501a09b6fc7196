"""Functions of models, traced once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf


def traced(function: Callable[..., Any], *arguments: Any, autograph: bool = True) -> Callable[..., Any]:
    """Return a function of tensors, traced for the shapes and types that it is given here and for nothing else.

    TensorFlow counts how often functions of one line are traced and called, and warns of "retracing" where a process
    makes one function per model and calls each a few times. A concrete function is not counted, and never traced again.

    Args:
        function: The function.
        *arguments: Tensors in the structure of its arguments: symbolic ones of Keras leave the size of the batch open.
            What the function is called with is cast to their types.
        autograph: Whether TensorFlow rewrites Python's control flow in the function.
    """
    signature = keras.tree.map_structure(lambda tensor: tf.TensorSpec(tensor.shape, tensor.dtype), arguments)
    concrete = tf.function(function, autograph=autograph).get_concrete_function(*signature)

    def call(*given: Any) -> Any:
        return concrete(*keras.tree.map_structure(lambda tensor, spec: tf.cast(tensor, spec.dtype), given, signature))

    return call
