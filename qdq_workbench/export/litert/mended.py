"""Corrections of what TensorFlow's converter writes and interpreters refuse or compute otherwise than the model.

| The converter writes | Corrected |
|---|---|
| a product of integers and a weight in float | the integers become floats in front of it |
| a transposed convolution with a bias of one number | a bias of one number per channel |
| the rounding of a float sigmoid or softmax | floats (`float_ranges`) |
| barriers of the model that it reads | nothing (`barriers`) |
| results of splits that nothing reads, as outputs | nothing (`unread_results`) |
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np

from qdq_workbench.export.encodings import Encoding
from qdq_workbench.export.litert.barriers import without_barriers
from qdq_workbench.export.litert.float_ranges import with_floats_kept
from qdq_workbench.export.litert.kernels import KERNELS, Kernel
from qdq_workbench.export.litert.tflite_file import FLOAT32, INT8, Reader, TFLiteFile
from qdq_workbench.export.litert.tflite_order import in_stable_order
from qdq_workbench.export.litert.unread_results import without_unread

_ONE_BIAS_PER_CHANNEL = "TRANSPOSE_CONV"


def mended(content: bytes, pairs: Collection[Encoding]) -> bytes:
    """Return a file of the converter, for a model with these pairs, as it should have been, in its stable order."""
    file = TFLiteFile(content)
    # In this order: `with_floats_kept` looks at the outputs, and behind a barrier lies a pair.
    without_unread(file)
    with_floats_kept(file, pairs)
    without_barriers(file)
    for graph in file.graphs:
        for operator in list(graph.operators):
            if file.name_of(operator) in KERNELS:
                _mend(file, graph, operator, KERNELS[file.name_of(operator)])
    in_stable_order(file)
    return file.content()


def _mend(file: TFLiteFile, graph: Any, operator: Any, kernel: Kernel) -> None:
    weight = graph.tensors[operator.inputs[kernel.weight]]
    # The converter does so to an EinsumDense on more than two axes whose result has no pair.
    if graph.tensors[operator.inputs[kernel.data]].type == INT8 and weight.type == FLOAT32:
        file.compute_in_float(graph, operator)
    if file.name_of(operator) != _ONE_BIAS_PER_CHANNEL or kernel.bias >= len(operator.inputs):
        return
    # The converter moves a number that an activation adds into the kernel, as the bias that the layer has not.
    channels = int(weight.shape[kernel.axis])
    held = None if operator.inputs[kernel.bias] < 0 else file.values(graph.tensors[operator.inputs[kernel.bias]])
    if held is None or held.size != 1 or channels == 1:
        return
    bias = file.own_input(Reader(graph, operator, kernel.bias))
    file.set_values(bias, np.full(channels, held.reshape(())), bias.type)
    bias.shape = np.array([channels], np.int32)
