"""The package `tfmot.quantization` of TFMOT, for its quantization interface `tfmot.quantization.keras`."""

from __future__ import annotations

from qdq_workbench.tfmot.quantization import keras

__all__ = ["keras"]
