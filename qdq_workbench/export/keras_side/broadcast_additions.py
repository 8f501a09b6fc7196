"""Additions in a graph with a batch size of 1: Keras takes what has one long axis there for the bias of a convolution.

`keras.ops.add` (TensorFlow backend, Keras 3.15) hands tensors such as (1, 1, 4) or (1, 4, 1) to `bias_add`, along the
last axis or the second one of the other operand, whichever is as long, and whichever axis of the tensor it is. With an
open batch size, or for several samples, such a tensor has two long axes and is broadcast.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

from qdq_workbench._thread_patches import ThreadPatch


def _backend() -> Any:
    return importlib.import_module("keras.src.backend.tensorflow.numpy")


def _add(usual: Callable[..., Any], x1: Any, x2: Any) -> Any:
    """Add two tensors; the second one is broadcast where only the batch size makes Keras take it for a bias."""
    import keras
    import tensorflow as tf

    if not (_is_taken_for_a_bias(_sizes(x1), _sizes(x2)) and _is_of_the_batch(x1, x2)):
        return usual(x1, x2)
    dtype = keras.backend.result_type(x1.dtype, x2.dtype)
    return tf.add(tf.cast(x1, dtype), tf.cast(x2, dtype))


BROADCAST_ADDITIONS = ThreadPatch(_backend, "add", _add)


def _sizes(value: Any) -> tuple[int | None, ...]:
    import tensorflow as tf

    shape = tf.TensorShape(getattr(value, "shape", ()))
    return () if shape.rank is None else tuple(shape)


def _is_taken_for_a_bias(one: tuple[int | None, ...], two: tuple[int | None, ...]) -> bool:
    """Return whether Keras adds one sample with one long axis to another one as the bias of a convolution.

    Perhaps along another axis than the one that it is broadcast to; and tf2onnx reads no bias along the second axis.
    """
    long = [size for size in two if size != 1]
    if len(one) < 2 or len(two) < 2 or len(long) != 1 or long[0] is None:
        return False
    return long[0] in (one[1], one[-1]) and one[0] == two[0] == 1


def _is_of_the_batch(other: Any, tensor: Any) -> bool:
    """Return whether an operand follows from an input with a batch: what does not is the same for any batch size."""
    import tensorflow as tf

    if not isinstance(tensor, tf.Tensor):  # a variable or an array
        return False
    if not tf.is_symbolic_tensor(tensor):
        return not tf.is_symbolic_tensor(other)  # in a graph it is a constant
    captured = {value.op.name for value in tensor.graph.internal_captures}
    seen, waiting = set(captured), [tensor.op]
    while waiting:
        operation = waiting.pop()
        if operation.name in seen:
            continue
        seen.add(operation.name)
        if operation.type == "Placeholder" and _has_a_batch(operation.outputs[0]):
            return True
        waiting += [value.op for value in operation.inputs]
    return False


def _has_a_batch(placeholder: Any) -> bool:
    """Return whether an input of a traced function is one of the model's: weights are inputs of the function, too."""
    if placeholder.op.name.startswith(WEIGHT_INPUT):
        return False
    return bool(placeholder.shape.rank) and placeholder.shape[0] == 1


#: How the names begin of those inputs of a traced function that are weights.
WEIGHT_INPUT = "qdq_weight_"
