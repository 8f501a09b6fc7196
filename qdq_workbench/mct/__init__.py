"""The interface of Sony's Model Compression Toolkit (MCT) for Keras, on this library.

    from qdq_workbench import mct

    quantized_model, info = mct.keras_post_training_quantization(model, representative_data_gen, n_iter=20)

The names, arguments and defaults are those of MCT 1.0 to 1.3; differences are documented at each name. The quantized
model is a `QuantizedModel` like any other: it can be exported, verified and trained.
"""

from __future__ import annotations

from qdq_workbench import DefaultDict, FrameworkInfo, QuantizationMethod
from qdq_workbench.mct.default_keras_info import DEFAULT_KERAS_INFO
from qdq_workbench.mct.facade import UserInformation, keras_post_training_quantization
from qdq_workbench.mct.gradient_ptq import GradientPTQConfig
from qdq_workbench.mct.quantization_config import (
    DEFAULTCONFIG,
    QuantizationConfig,
    QuantizationErrorMethod,
    ThresholdSelectionMethod,
)

__all__ = [
    "DEFAULTCONFIG",
    "DEFAULT_KERAS_INFO",
    "DefaultDict",
    "FrameworkInfo",
    "GradientPTQConfig",
    "QuantizationConfig",
    "QuantizationErrorMethod",
    "QuantizationMethod",
    "ThresholdSelectionMethod",
    "UserInformation",
    "keras_post_training_quantization",
]
