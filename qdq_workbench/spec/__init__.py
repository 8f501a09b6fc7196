"""The user's specification: the grid of one tensor, and the settings for a whole model."""

from __future__ import annotations

from qdq_workbench.spec.framework_info import DefaultDict, FrameworkInfo, QuantizationMethod
from qdq_workbench.spec.quantization_spec import LayerConfig, QuantizationSpec
from qdq_workbench.spec.quantize_config import LayerQuantizeConfig, QuantizeConfig
from qdq_workbench.spec.quantizer_method import QuantizerMethod
from qdq_workbench.spec.quantizer_spec import QuantizerSpec

__all__ = [
    "DefaultDict",
    "FrameworkInfo",
    "LayerConfig",
    "LayerQuantizeConfig",
    "QuantizationMethod",
    "QuantizationSpec",
    "QuantizeConfig",
    "QuantizerMethod",
    "QuantizerSpec",
]
