"""`tfmot.quantization.keras`, as TFMOT's documentation has it."""

from __future__ import annotations

from qdq_workbench.spec.quantize_config import QuantizeConfig
from qdq_workbench.tfmot import quantizers
from qdq_workbench.tfmot.annotate import quantize_annotate_layer, quantize_annotate_model
from qdq_workbench.tfmot.apply import quantize_apply, quantize_model, quantize_scope

__all__ = [
    "QuantizeConfig",
    "quantize_annotate_layer",
    "quantize_annotate_model",
    "quantize_apply",
    "quantize_model",
    "quantize_scope",
    "quantizers",
]
