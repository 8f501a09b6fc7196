"""The wrappers of the layer classes of NVIDIA's tensorflow-quantization toolkit, under its names.

All other known classes are served by `WeightedBaseQuantizeWrapper` and `NonWeightedBaseQuantizeWrapper`.
"""

from __future__ import annotations

from qdq_workbench.wrappers.base import NonWeightedBaseQuantizeWrapper, WeightedBaseQuantizeWrapper


class Conv2DQuantizeWrapper(WeightedBaseQuantizeWrapper):
    """Wraps a Conv2D: input, and kernel per output channel."""


class DenseQuantizeWrapper(WeightedBaseQuantizeWrapper):
    """Wraps a Dense: input, and kernel per unit."""


class DepthwiseConv2DQuantizeWrapper(WeightedBaseQuantizeWrapper):
    """Wraps a DepthwiseConv2D: input, and kernel per input channel."""


class AveragePooling2DQuantizeWrapper(NonWeightedBaseQuantizeWrapper):
    """Wraps an AveragePooling2D: input."""


class GlobalAveragePooling2DQuantizeWrapper(NonWeightedBaseQuantizeWrapper):
    """Wraps a GlobalAveragePooling2D: input."""


class MaxPooling2DQuantizeWrapper(NonWeightedBaseQuantizeWrapper):
    """Wraps a MaxPooling2D: input."""


class BatchNormalizationQuantizeWrapper(NonWeightedBaseQuantizeWrapper):
    """Wraps a BatchNormalization: input."""


class ConcatenateQuantizeWrapper(NonWeightedBaseQuantizeWrapper):
    """Wraps a Concatenate: chosen inputs."""


class AddQuantizeWrapper(NonWeightedBaseQuantizeWrapper):
    """Wraps an Add: chosen inputs."""


class MultiplyQuantizeWrapper(NonWeightedBaseQuantizeWrapper):
    """Wraps a Multiply: chosen inputs."""
