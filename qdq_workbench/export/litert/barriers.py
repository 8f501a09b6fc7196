"""Barriers behind or in front of pairs, which keep TensorFlow's converter from merging two grids, or spreading one.

The converter drops a pair behind an integer operator with another grid, as there is between two pairs with a Dropout
or a Transpose between them, because it removes every QUANTIZE of a DEQUANTIZE:

    operator -> DEQUANTIZE -> QUANTIZE        ->        operator

It also rounds constants to the grid of the tensor that they may stand in for, as in a choice by a mask.

So the model that it reads has operations between the two that it can neither quantize nor remove: to another type and
back, so that a constant, of which it computes them itself, stays what it is. No file has them: `without_barriers`
connects their two sides.
"""

from __future__ import annotations

from typing import Any

import keras
import tensorflow as tf

from qdq_workbench.export.litert.tflite_file import TFLiteFile

BARRIER = "qdq.barrier"  # begins the layers' names, which the names of their results contain
_OPERATOR = "CAST"
_WIDER = tf.float64


class Barrier(keras.layers.Layer):
    """Operations that become float operators in the converter's file and compute nothing."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(autocast=False, **kwargs)
        self.supports_masking = True

    def call(self, inputs: Any) -> Any:
        """Return the inputs; while a graph is traced, for the converter, through another type."""
        return inputs if tf.executing_eagerly() else tf.cast(tf.cast(inputs, _WIDER), inputs.dtype)


def without_barriers(file: TFLiteFile) -> bool:
    """Remove the barriers from a file; return whether there were any."""
    found = False
    for graph in file.graphs:
        for operator in list(graph.operators):
            if file.name_of(operator) == _OPERATOR and BARRIER.encode() in graph.tensors[operator.outputs[0]].name:
                file.connect(graph, operator)
                found = True
    return found
