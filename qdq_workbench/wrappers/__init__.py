"""Keras layers that hold quantizers: the Q/DQ pair of a tensor, and the wrappers of layers."""

from __future__ import annotations

from qdq_workbench.quantizers.quantizer import Quantizer
from qdq_workbench.wrappers.attention_parts import AttentionMask, MaskedProjection, MaskOf
from qdq_workbench.wrappers.base import (
    BaseQuantizeWrapper,
    NonWeightedBaseQuantizeWrapper,
    WeightedBaseQuantizeWrapper,
    wrapper_class_for,
)
from qdq_workbench.wrappers.layers import (
    AddQuantizeWrapper,
    AveragePooling2DQuantizeWrapper,
    BatchNormalizationQuantizeWrapper,
    ConcatenateQuantizeWrapper,
    Conv2DQuantizeWrapper,
    DenseQuantizeWrapper,
    DepthwiseConv2DQuantizeWrapper,
    GlobalAveragePooling2DQuantizeWrapper,
    MaxPooling2DQuantizeWrapper,
    MultiplyQuantizeWrapper,
)
from qdq_workbench.wrappers.qdq import QuantizeDequantize
from qdq_workbench.wrappers.spectral import SpectralNormalizationQuantizeWrapper

__all__ = [
    "AddQuantizeWrapper",
    "AttentionMask",
    "AveragePooling2DQuantizeWrapper",
    "BaseQuantizeWrapper",
    "BatchNormalizationQuantizeWrapper",
    "ConcatenateQuantizeWrapper",
    "Conv2DQuantizeWrapper",
    "DenseQuantizeWrapper",
    "DepthwiseConv2DQuantizeWrapper",
    "GlobalAveragePooling2DQuantizeWrapper",
    "MaskOf",
    "MaskedProjection",
    "MaxPooling2DQuantizeWrapper",
    "MultiplyQuantizeWrapper",
    "NonWeightedBaseQuantizeWrapper",
    "QuantizeDequantize",
    "Quantizer",
    "SpectralNormalizationQuantizeWrapper",
    "WeightedBaseQuantizeWrapper",
    "wrapper_class_for",
]
