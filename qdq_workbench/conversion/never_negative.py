"""Which operations of a rebuilt model cannot give negative values: what reads them need not check for a lower bound.

Stricter than `graph.op_kinds.is_never_negative`, which planning uses: results depend on this one, so only Keras's own
classes count, with Keras's own functions in them, and only where the activation is the last thing that they compute.
"""

from __future__ import annotations

from typing import Any

import keras

_FUNCTIONS = tuple(getattr(keras.activations, name) for name in ("relu", "relu6", "sigmoid", "softmax"))
_OPERATIONS = ("Relu", "Relu6", "Sigmoid", "Softmax")
_ENDING_IN_ACTIVATION = tuple(
    getattr(keras.layers, name)
    for name in (
        "Activation",
        "Conv1D",
        "Conv2D",
        "Conv3D",
        "Conv1DTranspose",
        "Conv2DTranspose",
        "Conv3DTranspose",
        "Dense",
        "DepthwiseConv1D",
        "DepthwiseConv2D",
        "EinsumDense",
        "SeparableConv1D",
        "SeparableConv2D",
    )
)


def is_never_negative(operation: Any) -> bool:
    """Return whether no result of an operation can be below 0, whatever comes in.

    Args:
        operation: A Keras layer or operation.

    Example:
        >>> is_never_negative(keras.layers.ReLU(6.0)), is_never_negative(keras.layers.ReLU(negative_slope=0.1))
        (True, False)
        >>> is_never_negative(keras.layers.Dense(3, activation="relu")), is_never_negative(keras.layers.Dense(3))
        (True, False)
    """
    kind = type(operation)
    if kind is keras.layers.ReLU:
        return not (operation.negative_slope or operation.threshold)
    if kind in _ENDING_IN_ACTIVATION:
        return operation.activation in _FUNCTIONS
    return kind.__module__.startswith("keras.") and kind.__name__ in _OPERATIONS
