"""`DEFAULT_KERAS_INFO` of MCT 1.0 with Keras 3's layer classes; Flatten is added next to Reshape.

Source: `model_compression_toolkit/keras/default_framework_info.py`, version 1.0.0.
"""

from __future__ import annotations

from keras import layers

from qdq_workbench import DefaultDict, FrameworkInfo, QuantizationMethod
from qdq_workbench.mct.quantizers import (
    constraint_quantization,
    kmeans_quantizer,
    lut_kmeans_quantizer,
    symmetric_uniform_quantizer,
)

KERNEL = [layers.Conv2D, layers.DepthwiseConv2D, layers.Dense, layers.Conv2DTranspose]

NO_QUANTIZATION = [layers.Reshape, layers.Flatten, layers.ZeroPadding2D, layers.Dropout, layers.MaxPooling2D]

ACTIVATION = [
    layers.Activation,
    layers.ReLU,
    layers.Softmax,
    layers.GlobalAveragePooling2D,
    layers.Add,
    layers.Multiply,
    layers.AveragePooling2D,
    layers.UpSampling2D,
    layers.InputLayer,
    layers.Concatenate,
    layers.PReLU,
]

#: (Output axis, input axis) of the kernel.
DEFAULT_CHANNEL_AXIS_DICT = DefaultDict(
    {
        layers.Conv2D: (3, 2),
        # Depthwise kernels are (height, width, channels, multiplier); transposed ones have the outputs in front.
        layers.DepthwiseConv2D: (2, 2),
        layers.Dense: (1, 0),
        layers.Conv2DTranspose: (2, 3),
    },
    lambda: (None, None),
)

ACTIVATION2MINMAX = {
    "softmax": (0, 1),
    "sigmoid": (0, 1),
    "linear": (None, None),
    "identity": (None, None),
    "tanh": (-1, 1),
    "swish": (-0.279, None),
    "relu": (0, None),
    "selu": (None, None),
}

LAYER2MINMAX = {layers.Softmax: (0, 1), layers.ReLU: (0, None)}

ACTIVATION_QUANTIZER_MAPPING = {QuantizationMethod.SYMMETRIC_UNIFORM: constraint_quantization}

WEIGHTS_QUANTIZER_MAPPING = {
    QuantizationMethod.SYMMETRIC_UNIFORM: symmetric_uniform_quantizer,
    QuantizationMethod.KMEANS: kmeans_quantizer,
    QuantizationMethod.LUT_QUANTIZER: lut_kmeans_quantizer,
}

DEFAULT_KERAS_INFO: FrameworkInfo = FrameworkInfo(
    KERNEL,
    ACTIVATION,
    NO_QUANTIZATION,
    ACTIVATION_QUANTIZER_MAPPING,
    WEIGHTS_QUANTIZER_MAPPING,
    DEFAULT_CHANNEL_AXIS_DICT,
    ACTIVATION2MINMAX,
    LAYER2MINMAX,
)
