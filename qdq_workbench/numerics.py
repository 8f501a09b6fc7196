"""The arithmetic of quantization on arrays: scale and zero point from ranges, quantize and dequantize.

The public name of `qdq_workbench.quantizers.numerics`; importing it does not import TensorFlow.
"""

from __future__ import annotations

from qdq_workbench.quantizers.numerics import (
    QParams,
    dequantize,
    fake_quantize,
    qparams_from_range,
    quantize,
    weight_range,
)

__all__ = ["QParams", "dequantize", "fake_quantize", "qparams_from_range", "quantize", "weight_range"]
