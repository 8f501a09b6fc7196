"""The arithmetic of quantization, on NumPy arrays and in float32 throughout.

Notation: n bits, grid [qmin, qmax], scale s > 0, zero point z, round() to nearest with ties to even.

    low = min(minimum, 0) ; high = max(maximum, 0)                       zero is always representable
    symmetric    s = max(-low, high) / (2^(n-1) - 1)                     z = 0, or 2^(n-1) when unsigned
    asymmetric   s = (high - low) / (qmax - qmin)
                 z = clamp(round_half_away(u0 - low / s), u0, 2^n - 1)   u0 = 1 if narrow else 0
                 ... minus 2^(n-1) when signed, so that signed and unsigned describe the same values
    quantize         q = saturate(round(x / s) + z, qmin, qmax)
    dequantize       y = (q - z) * s
    fake_quantize    y = dequantize(quantize(x))

A range narrower than 2^-100 counts as zero and gets s = 2^-10, so that no division involves a zero or a denormal
number, and an int32 bias, whose scale is the product of two scales, stays precise next to a tensor of zeros.
On a wide symmetric grid both ends use 2^(n-1) - 1 steps, as in TensorRT, so only saturation gives the lowest code;
TensorFlow Model Optimization divides the negative end by 2^(n-1) there.

Sources: ONNX operators QuantizeLinear and DequantizeLinear (true division, ties to even, saturation);
TensorFlow Lite 8-bit quantization specification; Jacob et al. 2018, arXiv:1712.05877, equations 1 and 13
(affine mapping, nudged zero point); Krishnamoorthi 2018, arXiv:1806.08342 (per-channel symmetric weights).
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import numpy.typing as npt

from qdq_workbench.errors import DataError, QuantizerError
from qdq_workbench.quantizers import blocks
from qdq_workbench.quantizers.blocks import other_axes, spread
from qdq_workbench.spec.quantizer_spec import QuantizerSpec

SMALLEST_WIDTH = 2.0**-100
ZERO_SCALE = 2.0**-10  # the scale of a range that counts as zero; a power of two, for calibrations that require one
LARGEST_END = 2.0**125  # a width of two such ends is finite in float32, and so is its grid

Float32Array = npt.NDArray[np.float32]
Int32Array = npt.NDArray[np.int32]


@dataclasses.dataclass(frozen=True, eq=False)
class QParams:
    """The scale and zero point of a grid.

    Args:
        scale: float32: shape `()` per tensor, `(C,)` per slice along `spec.axis`, or per block the shape of the tensor
            with `ceil(C / block_size)` as the size of that axis.
        zero_point: int32, of the same shape as `scale`.
        spec: The grid that scale and zero point belong to.

    Raises:
        QuantizerError: If a scale is not a positive finite number, a zero point is not on the grid, or the shapes do
            not match.

    Example:
        >>> params = qparams_from_range(-1.0, 1.0)
        >>> round(float(params.scale) * 127, 6), int(params.zero_point)
        (1.0, 0)
    """

    scale: Float32Array
    zero_point: Int32Array
    spec: QuantizerSpec

    def __post_init__(self) -> None:
        scale = np.asarray(self.scale, np.float32)
        zero_point = np.asarray(self.zero_point, np.int32)
        most = 0 if self.spec.axis is None else 1 if self.spec.block_size is None else scale.ndim
        if scale.shape != zero_point.shape or scale.ndim > most:
            raise QuantizerError(
                "scale and zero_point must have the same shape: (), (C,) for a spec with an axis, or one value per "
                "block "
                "for a spec with a block_size. "
                f"Received: shapes {scale.shape} and {zero_point.shape}, spec={self.spec}"
            )
        if not (np.isfinite(scale).all() and (scale > 0).all()):
            raise QuantizerError(f"Every scale must be finite and greater than 0. Received: scale={scale}")
        if (zero_point < self.spec.qmin).any() or (zero_point > self.spec.qmax).any():
            raise QuantizerError(
                f"Every zero point must lie on the grid {self.spec.qmin}..{self.spec.qmax}. "
                f"Received: zero_point={zero_point}"
            )
        object.__setattr__(self, "scale", scale)
        object.__setattr__(self, "zero_point", zero_point)

    def __eq__(self, other: object) -> bool:
        """Whether `other` has the same grid, scales and zero points, bit for bit."""
        return (
            isinstance(other, QParams)
            and self.spec == other.spec
            and np.array_equal(self.scale, other.scale)
            and np.array_equal(self.zero_point, other.zero_point)
        )

    __hash__ = None  # type: ignore[assignment]

    @property
    def representable_range(self) -> tuple[Float32Array, Float32Array]:
        """The lowest and the highest value on the grid, in the shape of `scale`.

        Example:
            >>> low, high = qparams_from_range(0.0, 255.0, signed=False, symmetric=False).representable_range
            >>> float(low), float(high)
            (0.0, 255.0)
        """
        low = (self.spec.qmin - self.zero_point).astype(np.float32) * self.scale
        high = (self.spec.qmax - self.zero_point).astype(np.float32) * self.scale
        return np.asarray(low, np.float32), np.asarray(high, np.float32)


def qparams_from_range(
    minimum: npt.ArrayLike, maximum: npt.ArrayLike, spec: QuantizerSpec | None = None, **spec_fields: Any
) -> QParams:
    """Return the scale and zero point of the grid of a range.

    Args:
        minimum: Lowest value, a number or shape `(C,)`; with a `block_size` one per block. The range is extended to
            contain 0.
        maximum: Highest value, of the same shape.
        spec: The grid; None for the defaults of `QuantizerSpec` (signed, symmetric, wide, 8 bits).
        **spec_fields: Fields of `QuantizerSpec` that replace those of `spec`. Ranges of shape `(C,)` for a spec
            without an axis apply to the last axis.

    Returns:
        Scale and zero point, of the shape of the range.

    Raises:
        DataError: If the range holds NaN or infinity, has minimum > maximum, exceeds 2^125, or its shapes differ.

    Example:
        >>> params = qparams_from_range(0.0, 6.0, signed=False, symmetric=False)
        >>> round(float(params.scale), 6), int(params.zero_point)
        (0.023529, 0)
    """
    spec = dataclasses.replace(spec or QuantizerSpec(), **spec_fields)
    low, high = _checked_range(minimum, maximum, blocks=spec.block_size is not None)
    if low.ndim == 1 and spec.axis is None:
        spec = spec.replace(axis=-1)
    if spec.symmetric:
        width, steps = np.maximum(-low, high), 2 ** (spec.num_bits - 1) - 1
    else:
        width, steps = high - low, spec.qmax - spec.qmin
    is_range = width >= np.float32(SMALLEST_WIDTH)
    scale = np.asarray(np.where(is_range, width / np.float32(steps), np.float32(ZERO_SCALE)), np.float32)
    return QParams(scale, _zero_point(low, scale, spec), spec)


def quantize(x: npt.ArrayLike, qparams: QParams) -> npt.NDArray[Any]:
    """Quantize floats to integers, as ONNX QuantizeLinear does.

    Args:
        x: Values; taken as float32. Infinities saturate.
        qparams: Scale and zero point; a scale of shape `(C,)` needs `x.shape[axis] == C`.

    Returns:
        Integers of the shape of `x`, in the smallest of int8, uint8, int16 and uint16 that holds the grid.

    Raises:
        DataError: If `x` holds NaN, or does not fit the shape of a per-axis scale.

    Example:
        >>> quantize([-2.0, 0.5, 1.5, 300.0], qparams_from_range(-127.0, 127.0))
        array([ -2,   0,   2, 127], dtype=int8)
    """
    values = np.asarray(x, np.float32)
    if np.isnan(values).any():
        raise DataError("NaN has no integer; clean the values before quantizing them. Received: NaN values")
    spec = qparams.spec
    # x / s may overflow to infinity, which saturates.
    with np.errstate(over="ignore"):
        codes = np.rint(values / spread(qparams.scale, values.shape, spec))
    codes += spread(qparams.zero_point, values.shape, spec).astype(np.float32)
    return np.clip(codes, spec.qmin, spec.qmax).astype(storage_dtype(spec))


def dequantize(q: npt.ArrayLike, qparams: QParams) -> Float32Array:
    """Dequantize integers to floats, as ONNX DequantizeLinear does.

    Args:
        q: Integers on the grid.
        qparams: Scale and zero point; a scale of shape `(C,)` needs `q.shape[axis] == C`.

    Returns:
        float32 values of the shape of `q`.

    Raises:
        DataError: If `q` does not fit the shape of a per-axis scale.

    Example:
        >>> dequantize(np.array([0, 10], np.uint8), qparams_from_range(0, 51, signed=False, symmetric=False))
        array([0., 2.], dtype=float32)
    """
    codes = np.asarray(q)
    shape, spec = codes.shape, qparams.spec
    steps = codes.astype(np.int32) - spread(qparams.zero_point, shape, spec)
    return np.asarray(steps.astype(np.float32) * spread(qparams.scale, shape, spec), np.float32)


def fake_quantize(x: npt.ArrayLike, qparams: QParams) -> Float32Array:
    """Round floats to the nearest values on the grid: `dequantize(quantize(x))`.

    Args:
        x: Values; taken as float32. Infinities saturate.
        qparams: Scale and zero point; a scale of shape `(C,)` needs `x.shape[axis] == C`.

    Returns:
        float32 values of the shape of `x`.

    Raises:
        DataError: If `x` holds NaN, or does not fit the shape of a per-axis scale.

    Example:
        >>> fake_quantize([0.6, 200.0], qparams_from_range(-127.0, 127.0))
        array([  1., 127.], dtype=float32)
    """
    return dequantize(quantize(x, qparams), qparams)


def weight_range(w: npt.ArrayLike, spec: QuantizerSpec) -> tuple[Float32Array, Float32Array]:
    """Return the range of a weight over all axes but `spec.axis`, or over each of its blocks.

    Args:
        w: The weight, of any rank; taken as float32.
        spec: The grid; only its `axis` and `block_size` are used.

    Returns:
        Lowest and highest values: float32 of shape `()` for `axis=None`, `(w.shape[axis],)`, or one per block.

    Raises:
        DataError: If the weight is empty or holds NaN or infinity.
        QuantizerError: If the weight has no such axis.

    Example:
        >>> low, high = weight_range([[-1.0, 2.0], [3.0, 4.0]], QuantizerSpec(axis=-1))
        >>> low.tolist(), high.tolist()
        ([-1.0, 2.0], [3.0, 4.0])
    """
    values = np.asarray(w, np.float32)
    if values.size == 0:
        raise DataError(f"An empty weight has no range. Received: shape={values.shape}")
    other_axes(values.ndim, spec.axis)  # raises an error if there is no such axis
    low, high = blocks.extremes(values, spec)
    if not (np.isfinite(low).all() and np.isfinite(high).all()):
        raise DataError(
            "The weight holds NaN or infinity, so it has no range; check the training that made it. "
            f"Received: a weight of shape {values.shape}"
        )
    return low, high


def storage_dtype(spec: QuantizerSpec) -> np.dtype[Any]:
    """Return the smallest NumPy integer type that holds the grid.

    Example:
        >>> storage_dtype(QuantizerSpec(num_bits=4, signed=False))
        dtype('uint8')
    """
    return np.dtype(f"{'int' if spec.signed else 'uint'}{8 if spec.num_bits <= 8 else 16}")


def _checked_range(
    minimum: npt.ArrayLike, maximum: npt.ArrayLike, *, blocks: bool = False
) -> tuple[Float32Array, Float32Array]:
    """Return the range as float32 arrays of one shape that contain 0."""
    low, high = np.asarray(minimum, np.float32), np.asarray(maximum, np.float32)
    if problem := _problem_of_range(low, high, blocks=blocks):
        # Only now: a search asks for thousands of ranges, and the text of an array takes longer than its grid.
        raise DataError(f"{problem} Received: minimum={minimum!r}, maximum={maximum!r}")
    return np.minimum(low, np.float32(0)), np.maximum(high, np.float32(0))


def _problem_of_range(low: Float32Array, high: Float32Array, *, blocks: bool) -> str:
    """Return what is wrong with a range; empty if nothing is."""
    if low.shape != high.shape or (low.ndim > 1 and not blocks):
        return "Both ends of a range must be numbers, or both of shape (C,)."
    if not (np.isfinite(low).all() and np.isfinite(high).all()):
        return "A range must be finite, without NaN; calibrate on clean data."
    if (low > high).any():
        return "A range must have minimum <= maximum; this one was never set."
    if (low < -LARGEST_END).any() or (high > LARGEST_END).any():
        return "A range must stay within +-2^125, or its grid overflows float32."
    return ""


def _zero_point(low: Float32Array, scale: Float32Array, spec: QuantizerSpec) -> Int32Array:
    """Return the zero point: the middle of a symmetric grid, else the code nearest to the value 0."""
    middle = 2 ** (spec.num_bits - 1)
    if spec.symmetric:
        return np.full(scale.shape, 0 if spec.signed else middle, np.int32)
    first, last = int(spec.narrow_range), 2**spec.num_bits - 1
    place = np.float32(first) - low / scale
    # As place >= 0, half up is half away from zero. floor(place + 0.5) would round the float below 0.5 up.
    whole = np.floor(place)
    rounded = np.clip(whole + (place - whole >= np.float32(0.5)), first, last)
    return np.asarray(rounded.astype(np.int32) - (middle if spec.signed else 0), np.int32)
