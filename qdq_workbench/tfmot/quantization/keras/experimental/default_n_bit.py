"""`tfmot.quantization.keras.experimental.default_n_bit`."""

from __future__ import annotations

from typing import Any

from qdq_workbench.tfmot.missing_names import explained
from qdq_workbench.tfmot.schemes import DefaultNBitQuantizeScheme

__all__ = ["DefaultNBitQuantizeScheme"]


def __getattr__(name: str) -> Any:
    raise explained(__name__, name)
