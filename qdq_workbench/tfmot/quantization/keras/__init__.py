"""The quantization interface of TFMOT, `tfmot.quantization.keras`."""

from __future__ import annotations

from typing import Any

from qdq_workbench import BaseQuantizeWrapper as QuantizeWrapper
from qdq_workbench import BaseQuantizeWrapper as QuantizeWrapperV2
from qdq_workbench import QuantizeConfig
from qdq_workbench.tfmot import quantizers
from qdq_workbench.tfmot.annotate import QuantizeAnnotate, quantize_annotate_layer, quantize_annotate_model
from qdq_workbench.tfmot.apply import quantize_apply, quantize_model, quantize_scope
from qdq_workbench.tfmot.missing_names import explained
from qdq_workbench.tfmot.quantization.keras import default_8bit, experimental
from qdq_workbench.tfmot.ranges import fix_input_output_range, remove_input_range

__all__ = [
    "QuantizeAnnotate",
    "QuantizeConfig",
    "QuantizeWrapper",
    "QuantizeWrapperV2",
    "default_8bit",
    "experimental",
    "fix_input_output_range",
    "quantize_annotate_layer",
    "quantize_annotate_model",
    "quantize_apply",
    "quantize_model",
    "quantize_scope",
    "quantizers",
    "remove_input_range",
]


def __getattr__(name: str) -> Any:
    raise explained(__name__, name)
