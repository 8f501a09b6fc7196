"""`tfmot.quantization.keras.default_8bit`, with its internal modules that users of TFMOT import classes from."""

from __future__ import annotations

from typing import Any

from qdq_workbench.tfmot import default_configs as default_8bit_quantize_configs
from qdq_workbench.tfmot import default_configs as default_8bit_quantize_registry
from qdq_workbench.tfmot.missing_names import explained
from qdq_workbench.tfmot.schemes import Default8BitQuantizeScheme

__all__ = ["Default8BitQuantizeScheme", "default_8bit_quantize_configs", "default_8bit_quantize_registry"]


def __getattr__(name: str) -> Any:
    raise explained(__name__, name)
