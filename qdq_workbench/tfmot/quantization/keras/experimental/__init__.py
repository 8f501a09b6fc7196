"""`tfmot.quantization.keras.experimental`: the scheme for other bit widths."""

from __future__ import annotations

from qdq_workbench.tfmot.quantization.keras.experimental import default_n_bit

__all__ = ["default_n_bit"]
