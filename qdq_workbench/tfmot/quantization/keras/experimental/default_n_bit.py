"""`tfmot.quantization.keras.experimental.default_n_bit`."""

from __future__ import annotations

from typing import Any

from qdq_workbench.tfmot.schemes import DefaultNBitQuantizeScheme
from qdq_workbench.tfmot.strangers import explained

__all__ = ["DefaultNBitQuantizeScheme"]


def __getattr__(name: str) -> Any:
    raise explained(__name__, name)
