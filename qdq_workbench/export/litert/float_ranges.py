"""Floats that TensorFlow's converter rounds to integers although nothing asks for it.

It knows the scale that the integer kernel of a sigmoid or a softmax writes, and applies it to those that compute in
float, too, if an operator behind can move integers:

    TANH -> QUANTIZE (1/128) -> RESHAPE -> DEQUANTIZE        ->        TANH -> RESHAPE
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from typing import Any

import numpy as np

from qdq_workbench.export.encodings import Encoding
from qdq_workbench.export.litert.tflite_file import FLOAT32, TFLiteFile, scales_of

#: Operator -> the scale that its int8 kernel writes.
FIXED_SCALES = {
    "TANH": 2.0**-7,
    "LOGISTIC": 2.0**-8,
    "SOFTMAX": 2.0**-8,
    "LOG_SOFTMAX": 2.0**-4,
    "L2_NORMALIZATION": 2.0**-7,
}
_ENDS = ("DEQUANTIZE", "QUANTIZE")
# The operators with one activation that compute the same on floats.
_MOVING = (
    *("RESHAPE", "TRANSPOSE", "SQUEEZE", "EXPAND_DIMS", "SLICE", "STRIDED_SLICE", "GATHER", "REVERSE_V2", "UNPACK"),
    *("PAD", "TILE", "MAX_POOL_2D", "AVERAGE_POOL_2D", "RESIZE_BILINEAR", "RESIZE_NEAREST_NEIGHBOR"),
)


def with_floats_kept(file: TFLiteFile, pairs: Collection[Encoding]) -> bool:
    """Let float operators with a fixed range hand on floats; return whether anything was changed."""
    # Where the user has such a pair, the converter's rounding may be that pair.
    asked = {np.float32(encoding.scale) for encoding in pairs}
    changed = False
    for graph in file.graphs:
        writers = {int(result): file.name_of(each) for each in graph.operators for result in each.outputs}
        for operator in list(graph.operators):
            if file.name_of(operator) != "QUANTIZE" or graph.tensors[operator.inputs[0]].type != FLOAT32:
                continue
            scales = scales_of(graph.tensors[operator.outputs[0]])
            fixed = FIXED_SCALES.get(writers.get(int(operator.inputs[0]), ""))
            if scales is not None and scales[0] == fixed and scales[0] not in asked:
                changed = _keep_floats(file, graph, operator) or changed
    return changed


def _keep_floats(file: TFLiteFile, graph: Any, rounding: Any) -> bool:
    """Remove a QUANTIZE if everything behind it ends in a DEQUANTIZE or in another QUANTIZE."""
    moved, ends = [int(rounding.outputs[0])], []
    for tensor in moved:
        for reader in file.readers(graph, tensor):
            name = file.name_of(reader.operator)
            if name in _ENDS:
                ends.append(reader.operator)
            elif name in _MOVING and reader.position == 0:
                moved += [int(result) for result in reader.operator.outputs]
            else:
                return False
    floats = [each for each in ends if file.name_of(each) == "DEQUANTIZE"]
    # A tensor can be one output of the model, not two.
    outputs = Counter(int(each.inputs[0]) for each in floats if each.outputs[0] in graph.outputs)
    if any(count > 1 for count in outputs.values()):
        return False
    for tensor in moved:
        file.to_float(graph.tensors[tensor])
    for each in (*floats, rounding):
        file.connect(graph, each)
    return True
