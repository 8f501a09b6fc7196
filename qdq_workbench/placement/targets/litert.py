"""LiteRT (TensorFlow Lite): int8 activations with a zero point, int32 biases, a pair on both sides of every operation.

Its kernels are either all integer or all float, so every operation between quantized tensors gets a pair on its
output as well; operations that only move or choose values keep the scale of their input.
"""

from __future__ import annotations

from qdq_workbench.placement.targets.target import TARGETS, Target
from qdq_workbench.spec.quantizer_spec import QuantizerSpec

LITERT = TARGETS.add(
    "litert",
    Target(
        name="litert",
        title="LiteRT (TensorFlow Lite) int8 kernels",
        activation=QuantizerSpec(signed=True, symmetric=False),
        weight=QuantizerSpec(signed=True, symmetric=True, narrow_range=True),
        bias="int32",
        integer_kinds=frozenset(
            {
                "Conv1D",
                "Conv2D",
                "Conv2DTranspose",
                "DepthwiseConv1D",
                "DepthwiseConv2D",
                "Dense",
                "Matmul",
                "Add",
                "Subtract",
                "Multiply",
                "GlobalAveragePooling1D",
                "GlobalAveragePooling2D",
            }
        ),
        same_scale_kinds=frozenset(
            {
                "AveragePooling1D",
                "AveragePooling2D",
                "MaxPooling1D",
                "MaxPooling2D",
                "GlobalMaxPooling1D",
                "GlobalMaxPooling2D",
                "Concatenate",
                "Maximum",
                "Minimum",
                "Flatten",
                "Reshape",
                "Permute",
                "UpSampling2D",
                "ZeroPadding2D",
                "Cropping2D",
            }
        ),
        fused_activations=frozenset({"relu", "relu6"}),
        integer_activations=frozenset({"leaky_relu", "sigmoid", "tanh", "hard_silu"}),
        completes_activations=True,
        file="tflite",
        documentation="https://ai.google.dev/edge/litert/models/quantization_spec",
        version="2.21",
    ),
)
