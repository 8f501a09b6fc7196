"""Encodings: the scale, zero point and integers of one tensor in a file.

With scale `s`, zero point `z` and code `q` a value is `(q - z) * s` in float32, as in ONNX DequantizeLinear.
A bias of a convolution or matrix product on integers has no scale of its own:

    s_b[c] = s_x * s_w[c]        (one float32 product, because runtimes compare it)
    b_q[c] = round(b[c] / s_b[c])        int32, zero point 0

`b_q` overflows where `|b[c]|` is large relative to `s_b[c]`, which happens in channels whose weights are nearly zero.
Its bound here is 2**30, so that bias and accumulator together stay within int32. Beyond it `s_w[c]` is raised to
`|b[c]| / (2**30 * s_x)` and the weights of that channel are rounded again. Channels whose weights are all zero get
that scale too, since it has the finest steps for the bias: see `quantizers.bias_room`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from qdq_workbench.errors import ExportError
from qdq_workbench.quantizers import bias_room
from qdq_workbench.quantizers.bias_room import bias_codes, bias_scale, least_weight_scale
from qdq_workbench.quantizers.blocks import scale_shape, spread
from qdq_workbench.quantizers.numerics import storage_dtype
from qdq_workbench.spec.quantizer_spec import QuantizerSpec


@dataclasses.dataclass(frozen=True)
class Encoding:
    """The scale, zero point and integers of one tensor in a file.

    Args:
        scale: float32, positive; rank 0, one value per slice along `spec.axis`, or one per block.
        zero_point: Integers of the same shape as `scale`.
        spec: The grid; `spec.axis` is the axis in the Keras layout of a weight.
        codes: The integers of a weight in its Keras layout; None for an activation.

    Raises:
        ExportError: If a scale is not positive and finite, the shapes disagree, or a zero point is not on the grid.
    """

    scale: np.ndarray
    zero_point: np.ndarray
    spec: QuantizerSpec
    codes: np.ndarray | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "scale", np.asarray(self.scale, np.float32))
        object.__setattr__(self, "zero_point", np.asarray(self.zero_point, np.int32))
        if not (np.all(np.isfinite(self.scale)) and np.all(self.scale > 0)):
            raise ExportError(f"Every scale must be finite and positive. Received: scale={self.scale!r}")
        fits = self.scale.ndim == (0 if self.spec.axis is None else 1)
        if self.spec.block_size is not None:
            fits = self.codes is not None and self.scale.shape == scale_shape(self.codes.shape, self.spec)
        if self.scale.shape != self.zero_point.shape or not fits:
            raise ExportError(
                "Scale and zero point need one shape: rank 0 without an axis, one value per slice or block with one. "
                f"Received: scale.shape={self.scale.shape}, zero_point.shape={self.zero_point.shape}, "
                f"axis={self.spec.axis}, block_size={self.spec.block_size}"
            )
        if np.any(self.zero_point < self.spec.qmin) or np.any(self.zero_point > self.spec.qmax):
            raise ExportError(
                f"Zero points must lie on the grid {self.spec.qmin}..{self.spec.qmax}. "
                f"Received: zero_point={self.zero_point!r}"
            )

    @property
    def dtype(self) -> np.dtype:
        """The integer type in the file: int8 or uint8 for up to 8 bits, int16 or uint16 beyond."""
        return storage_dtype(self.spec)

    def broadcast(self, values: np.ndarray) -> np.ndarray:
        """Return the scale or zero point shaped so that it broadcasts against the codes."""
        if self.spec.axis is None or self.codes is None:
            return values
        return spread(values, self.codes.shape, self.spec)

    def dequantized(self) -> np.ndarray:
        """Return the dequantized codes in float32.

        Raises:
            ExportError: If this is the encoding of an activation, which has no codes.
        """
        if self.codes is None:
            raise ExportError("Only the encoding of a weight holds codes. Received: codes=None")
        # In this order and in float32, as DequantizeLinear computes: an integer difference, then one product.
        shifted = self.codes.astype(np.int32) - self.broadcast(self.zero_point)
        return shifted.astype(np.float32) * self.broadcast(self.scale)


@dataclasses.dataclass(frozen=True)
class BiasEncoding:
    """One bias in a file: int32 codes with zero point 0.

    Args:
        scale: float32, the product of the input's and the weight's scale; rank 0 or (C,).
        codes: int32, shape (C,).
    """

    scale: np.ndarray
    codes: np.ndarray


def encode_bias(bias: np.ndarray, data: Encoding, weight: Encoding) -> BiasEncoding | None:
    """Encode a bias as `build_onnx` does behind `raise_scale_for_bias`; None if a code exceeds 2^30 or a scale is 0."""
    scale = bias_scale(data.scale, weight.scale)
    codes = bias_codes(bias, scale)
    return None if codes is None else BiasEncoding(scale, codes)


def pack_pairs(codes: np.ndarray) -> np.ndarray:
    """Return 4-bit codes, signed or not, packed two in a byte, the first one in the lower half, as files hold them.

    Example:
        >>> pack_pairs(np.array([1, -1, 7])).tolist()
        [241, 7]
    """
    flat = codes.reshape(-1).astype(np.uint8) & 0xF
    flat = np.append(flat, np.zeros(flat.size % 2, np.uint8))
    return np.asarray(flat[0::2] | (flat[1::2] << 4), np.uint8)


def clip_bounds(encoding: Encoding) -> tuple[np.float32, np.float32] | None:
    """Return the floats to which an activation must be clipped before QuantizeLinear; None if its grid fills the type.

    QuantizeLinear saturates at the ends of its integer type. A grid that does not fill the type (fewer bits, or narrow
    range) needs a Clip to `(qmin - z) * s, (qmax - z) * s` in front.
    """
    if encoding.spec.fills_type:
        return None
    # In float32, as DequantizeLinear computes: each bound is exactly the outermost value of the grid.
    zero, scale = np.float32(encoding.zero_point), np.float32(encoding.scale)
    return (np.float32(encoding.spec.qmin) - zero) * scale, (np.float32(encoding.spec.qmax) - zero) * scale


def raise_scale_for_bias(weight: Encoding, bias: np.ndarray, input_scale: np.ndarray) -> Encoding:
    """Raise the scales of a symmetric weight whose bias would overflow int32, and round those weights again.

    Call it before simulating or exporting a layer whose bias is stored as int32; where nothing overflows the encoding
    is returned as it is, so calling it twice does no harm.
    """
    if weight.codes is None:
        raise ExportError("Only the encoding of a weight can be rounded again. Received: codes=None")
    floor = least_weight_scale(bias, input_scale)
    if weight.spec.axis is not None and floor.shape != weight.scale.shape:
        raise ExportError(
            "The bias must have one value per weight scale. "
            f"Received: bias.shape={floor.shape}, scale.shape={weight.scale.shape}"
        )
    codes, scale = bias_room.raise_scales(weight.codes, weight.scale, weight.zero_point, weight.spec, floor)
    # `raise_scales` returns the very array that it was given where no scale is raised.
    return weight if scale is weight.scale else dataclasses.replace(weight, scale=scale, codes=codes)


def make_room_for_bias(weight: Encoding, bias: np.ndarray, input_scales: Sequence[np.ndarray]) -> Encoding:
    """Set the scales of all-zero channels to the least that their bias allows; raise those whose bias would overflow.

    `input_scales` has the scale of the layer's input at every call whose input is quantized.
    """
    codes = np.asarray(weight.codes)
    codes, scale = bias_room.make_room_for_bias(codes, weight.scale, weight.zero_point, weight.spec, bias, input_scales)
    return dataclasses.replace(weight, scale=scale, codes=codes)
