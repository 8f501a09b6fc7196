"""LiteRT (TensorFlow Lite): int8 activations with a zero point, int32 biases, a pair on both sides of every operation.

Its kernels are either all integer or all float, so every operation between quantized tensors gets a pair on its
output as well; operations that only move or select values keep the scale of their input.
"""

from __future__ import annotations

from qdq_workbench.placement.targets.target import TARGETS, Target
from qdq_workbench.spec.quantizer_spec import QuantizerSpec

LITERT = TARGETS.add(
    "litert",
    Target(
        name="litert",
        title="LiteRT (TensorFlow Lite)",
        activation=QuantizerSpec(signed=True, symmetric=False),
        weight=QuantizerSpec(signed=True, symmetric=True, narrow_range=True),
        bias="int32",
        integer_kinds=frozenset(
            {
                "Conv1D",
                "Conv2D",
                "Conv1DTranspose",
                "Conv2DTranspose",
                "DepthwiseConv1D",
                "DepthwiseConv2D",
                "Dense",
                "EinsumDense",
                "Matmul",
                "Add",
                "Subtract",
                "Multiply",
                # These become MEAN, which may change the scale; AVERAGE_POOL_2D may not.
                "GlobalAveragePooling1D",
                "GlobalAveragePooling2D",
                "GlobalAveragePooling3D",
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
                "GlobalMaxPooling3D",
                "Concatenate",
                "Maximum",
                "Minimum",
                "Flatten",
                "Reshape",
                "Permute",
                "RepeatVector",
                "Transpose",
                "Swapaxes",
                "Moveaxis",
                "GetItem",
                "Squeeze",
                "ExpandDims",
                # Bilinear, too: between two scales the converted operator computes wrong numbers.
                "Resizing",
                "UpSampling1D",
                "UpSampling2D",
                "UpSampling3D",
                "ZeroPadding1D",
                "ZeroPadding2D",
                "ZeroPadding3D",
                "Cropping1D",
                "Cropping2D",
                "Cropping3D",
            }
        ),
        fused_activations=frozenset({"relu", "relu6", "hard_tanh"}),
        integer_activations=frozenset(
            {
                "leaky_relu",
                "thresholded_relu",
                "prelu",
                "sigmoid",
                "tanh",
                "tanh_shrink",
                "silu",
                "hard_silu",
                "gelu",
                "exponential",
            }
        ),
        completes_activations=True,
        file="tflite",
        documentation="https://ai.google.dev/edge/litert/models/quantization_spec",
        version="2.21",
    ),
)
