"""Barriers behind or in front of pairs, which keep TensorFlow's converter from merging two grids, or spreading one.

The converter drops a pair behind an integer operator with another grid, as there is between two pairs with a Dropout
or a Transpose between them, because it removes every QUANTIZE of a DEQUANTIZE:

    operator -> DEQUANTIZE -> QUANTIZE        ->        operator

It also rounds constants to the grid of the tensor that they may stand in for, as in a choice by a mask.

So the model that it reads has an operation between the two that it can neither quantize nor remove. No file has it:
`without_barriers` connects its two sides.
"""

from __future__ import annotations

from typing import Any

import keras
import tensorflow as tf

from qdq_workbench.export.litert.tflite_file import TFLiteFile

BARRIER = "qdq.barrier"  # begins the layers' names, which the names of their results contain
_OPERATOR = "SIN"


class Barrier(keras.layers.Layer):
    """An operation that becomes a float operator in the converter's file and computes nothing elsewhere."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.supports_masking = True

    def call(self, inputs: Any) -> Any:
        """Return the inputs; while a graph is traced, for the converter, their sines."""
        return inputs if tf.executing_eagerly() else tf.sin(inputs)


def without_barriers(file: TFLiteFile) -> bool:
    """Remove the barriers from a file; return whether there were any."""
    found = False
    for graph in file.graphs:
        for operator in list(graph.operators):
            if file.name_of(operator) == _OPERATOR and BARRIER.encode() in graph.tensors[operator.outputs[0]].name:
                file.connect(graph, operator)
                found = True
    return found
