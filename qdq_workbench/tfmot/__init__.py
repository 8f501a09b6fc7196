"""The quantization interface of the TensorFlow Model Optimization Toolkit (TFMOT), on Keras 3 and this library.

In code written for TFMOT only the import changes:

    import qdq_workbench.tfmot as tfmot

    annotated = tfmot.quantization.keras.quantize_annotate_model(model)
    q_model = tfmot.quantization.keras.quantize_apply(annotated)

The result is a `QuantizedModel` like that of `qdq_workbench.quantize_model`, so calibration, export and verification
work on it. Every name is also available directly: `tfmot.quantize_apply`, `tfmot.quantizers.LastValueQuantizer`.
"""

from __future__ import annotations

from typing import Any

from qdq_workbench.tfmot import quantization, quantizers
from qdq_workbench.tfmot.annotate import QuantizeAnnotate, quantize_annotate_layer, quantize_annotate_model
from qdq_workbench.tfmot.apply import quantize_apply, quantize_model, quantize_scope
from qdq_workbench.tfmot.default_configs import Default8BitQuantizeConfig
from qdq_workbench.tfmot.missing_names import explained
from qdq_workbench.tfmot.quantization.keras import QuantizeConfig
from qdq_workbench.tfmot.ranges import fix_input_output_range, remove_input_range
from qdq_workbench.tfmot.schemes import Default8BitQuantizeScheme, DefaultNBitQuantizeScheme
from qdq_workbench.tfmot.trained import import_trained

__all__ = [
    "Default8BitQuantizeConfig",
    "Default8BitQuantizeScheme",
    "DefaultNBitQuantizeScheme",
    "QuantizeAnnotate",
    "QuantizeConfig",
    "fix_input_output_range",
    "import_trained",
    "quantization",
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
