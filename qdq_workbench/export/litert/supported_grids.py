"""The grids that a `.tflite` file can hold, what TensorFlow's converter makes of them, and the errors about others."""

from __future__ import annotations

from typing import Any

from qdq_workbench._pages import page
from qdq_workbench.conversion.engine.quantized_model import QuantizedModel
from qdq_workbench.errors import ExportError

INT16_BITS = 16
NARROWEST_SCALE = 1e-6 / 254  # the scale to which the converter widens ranges that end below 5e-7
ROUNDED_BY = 0.51  # of a step: how far the converter's own rounding moves a value
_WIDTHS = (8, INT16_BITS)
_MOST_BITS = 8
_SPECIFICATION = f"({page('targets.md', 'LiteRT')})"


def check_grids(q_model: QuantizedModel) -> None:
    """Refuse a model with grids, or with two widths of activations, that a `.tflite` file has no tensors for."""
    widths: dict[int, str] = {}
    for tensor in q_model.plan.tensors:
        if tensor.kind == "weight":
            _check_weight(tensor)
        else:
            _check_activation(tensor)
            widths.setdefault(tensor.quantizer.num_bits, tensor.name)
    if len(widths) > 1:
        shown = ", ".join(f"{bits} bits for {name!r}" for bits, name in sorted(widths.items()))
        raise ExportError(
            "LiteRT's kernels read and write activations of one width. Give every activation 8 or every one 16 bits; "
            "a target with activation=QuantizerSpec(num_bits=16, symmetric=True) does so for all. "
            f"Received: {shown}"
        )


def _check_activation(tensor: Any) -> None:
    spec = tensor.quantizer
    if spec.num_bits not in _WIDTHS:
        raise ExportError(
            "LiteRT's kernels saturate activations at the ends of int8 or int16, so activations have 8 or 16 bits. "
            f"Quantize {tensor.name!r} with one of them, or leave it in float {_SPECIFICATION}. "
            f"Received: num_bits={spec.num_bits}"
        )
    if spec.num_bits == INT16_BITS and not (spec.signed and spec.symmetric):
        raise ExportError(
            "LiteRT's int16 activations are signed and have no zero point. Quantize "
            f"{tensor.name!r} with num_bits=16, symmetric=True {_SPECIFICATION}. "
            f"Received: signed={spec.signed}, symmetric={spec.symmetric}"
        )


def _check_weight(tensor: Any) -> None:
    spec = tensor.quantizer
    if spec.num_bits > _MOST_BITS or not (spec.signed and spec.symmetric):
        raise ExportError(
            "LiteRT's kernels take signed weights of at most 8 bits without a zero point, whatever the width of the "
            f"activations. Quantize {tensor.name!r} with num_bits=8, symmetric=True, or leave it in float "
            f"{_SPECIFICATION}. Received: num_bits={spec.num_bits}, signed={spec.signed}, symmetric={spec.symmetric}"
        )
