"""ONNX Runtime on x86 CPUs: uint8 activations, int32 biases, and a pair after every integer kernel."""

from __future__ import annotations

from qdq_workbench.placement.targets.target import TARGETS, Target
from qdq_workbench.spec.quantizer_spec import QuantizerSpec

ONNXRUNTIME = TARGETS.add(
    "onnxruntime",
    Target(
        name="onnxruntime",
        title="ONNX Runtime CPU execution provider (x86-64)",
        # On x86 kernels of int8 by int8 are slower than float ones; by default only uint8 activations get kernels.
        activation=QuantizerSpec(signed=False, symmetric=False),
        # Narrow, because folding a negative gain flips the signs, and -128 would leave the grid.
        weight=QuantizerSpec(signed=True, symmetric=True, narrow_range=True),
        bias="int32",
        # Sub, Div and transposed convolutions have no integer kernel on CPUs.
        integer_kinds=frozenset(
            {
                "Conv1D",
                "Conv2D",
                "Conv3D",
                "DepthwiseConv1D",
                "DepthwiseConv2D",
                "Dense",
                "Matmul",
                "Add",
                "Multiply",
                "Concatenate",
                "AveragePooling1D",
                "AveragePooling2D",
                "AveragePooling3D",
                "GlobalAveragePooling1D",
                "GlobalAveragePooling2D",
                "GlobalAveragePooling3D",
            }
        ),
        # MatMul becomes MatMulIntegerToFloat, and QGemm may return floats.
        float_output_kinds=frozenset({"Dense", "Matmul"}),
        same_scale_kinds=frozenset(
            {
                "MaxPooling1D",
                "MaxPooling2D",
                "MaxPooling3D",
                "GlobalMaxPooling1D",
                "GlobalMaxPooling2D",
                "GlobalMaxPooling3D",
                "Flatten",
                "Reshape",
                "Permute",
                "UpSampling2D",
            }
        ),
        joined_kinds=frozenset({"Concatenate"}),
        fused_activations=frozenset({"relu", "relu6", "clipped_relu"}),
        relu_needs_zero=True,
        unsigned_activations=True,
        integer_activations=frozenset({"leaky_relu", "sigmoid", "softmax"}),
        # MatMulNBits takes powers of two from 16 on.
        block_sizes=frozenset({16, 32, 64, 128, 256}),
        other_blocks=True,
        relu_hides_blocks=True,
        quantizes_float_weights=True,
        merges_pairs=True,
        joins_hard_sigmoids=True,
        documentation="https://onnxruntime.ai/docs/performance/model-optimizations/quantization.html",
        version="1.32",
    ),
)
