"""The kernels of LiteRT that compute with weights: their inputs, and the types of weights that they take.

Measured with the interpreters of TensorFlow 2.21 and of ai-edge-litert 2.3: a kernel that is missing here for INT4
refuses it, or reads two codes as one without an error (DEPTHWISE_CONV_2D beside int16, TRANSPOSE_CONV).
Source: tensorflow/compiler/mlir/lite/tools/versioning/op_version.cc.
"""

from __future__ import annotations

import dataclasses

from qdq_workbench.export.litert.tflite_file import FLOAT32, INT4, INT8, INT16


@dataclasses.dataclass(frozen=True)
class Kernel:
    """The positions of an operator's inputs, and the axis of its weight's scales.

    Args:
        data: Position of the activation.
        weight: Position of the weight.
        bias: Position of the bias, which an operator may leave out.
        axis: The axis of the weight along which per-axis scales lie.
    """

    data: int
    weight: int
    bias: int
    axis: int


KERNELS = {
    "CONV_2D": Kernel(0, 1, 2, 0),
    "DEPTHWISE_CONV_2D": Kernel(0, 1, 2, 3),
    "FULLY_CONNECTED": Kernel(0, 1, 2, 0),
    # Its first input is the shape of the result.
    "TRANSPOSE_CONV": Kernel(2, 1, 3, 0),
}
# Operator, type of its activation, type of its weight -> the version of the operator that computes with them.
VERSIONS = {
    ("CONV_2D", INT8, INT4): 7,
    ("CONV_2D", INT16, INT4): 8,
    ("CONV_2D", FLOAT32, INT8): 5,
    ("CONV_2D", FLOAT32, INT4): 7,
    ("DEPTHWISE_CONV_2D", INT8, INT4): 7,
    ("DEPTHWISE_CONV_2D", FLOAT32, INT8): 6,
    ("FULLY_CONNECTED", INT8, INT4): 10,
    ("FULLY_CONNECTED", INT16, INT4): 13,
    ("FULLY_CONNECTED", FLOAT32, INT8): 12,
    ("FULLY_CONNECTED", FLOAT32, INT4): 12,
    ("TRANSPOSE_CONV", FLOAT32, INT8): 3,
}
