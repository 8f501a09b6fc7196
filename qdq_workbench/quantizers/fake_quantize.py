"""Fake quantization of TensorFlow tensors, with straight-through gradients.

The equations are those of `numerics`, in the same float32 operations and order, so both give the same values (except
that a zero may be negative here). They are arranged for few passes over the data:

    y = clamp(round(x / s), qmin - z, qmax - z) * s      the zero point moves into the bounds: exact integers
    dy/dx = 1 where (qmin - z) * s <= x <= (qmax - z) * s, else 0    (Bengio et al. 2013, arXiv:1308.3432)

x / s must remain a division: TensorFlow's graph optimizer and XLA both replace the division by a constant with a
multiplication by its reciprocal, which changes the rounding of ties. So divisors are hidden from constant folding.
Under XLA this is impossible for a range that is a constant of the graph: ties may then differ by one step.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from qdq_workbench.errors import QuantizerError
from qdq_workbench.quantizers._column_extremes import column_extremes, largest_magnitudes
from qdq_workbench.quantizers._xla import traced_for_xla
from qdq_workbench.quantizers.block_tensors import block_axis, grouped, spread_tensor, ungrouped
from qdq_workbench.quantizers.blocks import other_axes
from qdq_workbench.quantizers.gradients import custom_gradient
from qdq_workbench.quantizers.numerics import SMALLEST_WIDTH, ZERO_SCALE
from qdq_workbench.spec.quantizer_spec import QuantizerSpec

Bound = Any  # a tensor, or a float if it does not depend on the range
_SMALLEST_NUMBER = 1.1754944e-38  # TensorFlow takes smaller ones for 0


def fake_quantize_tensor(x: Any, minimum: Any, maximum: Any, spec: QuantizerSpec) -> Any:
    """Return the values of a floating-point tensor rounded to the nearest values on the grid of a range.

    Both ends of the range are numbers, or have shape `(C,)` for one per slice along `spec.axis`; the range is extended
    to contain 0. float16 and bfloat16 are computed in float32 and cast back. The gradient passes where `x` lies between
    the lowest and highest values of the grid and is 0 elsewhere; the range gets none.

    Example:
        >>> fake_quantize_tensor(tf.constant([0.6, 2.5, 200.0]), -127.0, 127.0, QuantizerSpec()).numpy()
        array([  1.,   2., 127.], dtype=float32)
    """
    x = _floating(x)
    grid = _grid_of(x, minimum, maximum, spec)

    @custom_gradient
    def straight_through(values: Any) -> tuple[Any, Callable[[Any], Any]]:
        return on_grid(values, *grid), lambda upstream: _masked(upstream, values, *grid, xla=traced_for_xla())

    return straight_through(x)


def nearest_on_grid(x: Any, minimum: Any, maximum: Any, spec: QuantizerSpec) -> Any:
    """Return the result of `fake_quantize_tensor`, without its custom gradient."""
    return on_grid(x, *_grid_of(x, minimum, maximum, spec))


def gradient_of_grid(upstream: Any, x: Any, minimum: Any, maximum: Any, spec: QuantizerSpec, *, xla: bool) -> Any:
    """Return the gradient of `fake_quantize_tensor`: the upstream gradient where `x` lies within the grid, else 0."""
    return _masked(upstream, x, *_grid_of(x, minimum, maximum, spec), xla=xla)


def _grid_of(x: Any, minimum: Any, maximum: Any, spec: QuantizerSpec) -> tuple[Any, Bound, Bound]:
    """Return scale and lowest and highest code minus the zero point, shaped to broadcast against `x`."""
    scale, code_low, code_high = (along_axis(value, x, spec) for value in grid_tensors(minimum, maximum, spec))
    return _opaque(scale), code_low, code_high


def on_grid(values: Any, scale: Any, code_low: Bound, code_high: Bound) -> Any:
    """Return values rounded to the nearest ones on a grid; both codes are those of the grid minus the zero point.

    The scale is not a constant of the graph (see the top of the file).
    """
    return tf.cast(nearest_codes(tf.cast(values, tf.float32) / scale, code_low, code_high) * scale, values.dtype)


def nearest_codes(places: Any, code_low: Bound, code_high: Bound) -> Any:
    """Return the nearest codes within the bounds.

    Bounds known at tracing time allow one kernel for rounding and clipping. That kernel quantizes to a grid of its
    own, here the integers with scale 1. On a GPU it would read the bounds from host memory, so it is not used there.
    """
    grid = _integers_between(code_low, code_high)
    if grid is None or traced_for_xla() or tf.config.list_physical_devices("GPU"):
        # Minimum and Maximum work in place; ClipByValue is one op but slower than both.
        return tf.maximum(tf.minimum(tf.math.rint(places), code_high), code_low)
    return tf.raw_ops.QuantizeAndDequantizeV4(
        input=places, input_min=code_low, input_max=code_high, range_given=True, round_mode="HALF_TO_EVEN", **grid
    )


def _integers_between(low: Bound, high: Bound) -> dict[str, Any] | None:
    """Return the bounds as attributes of QuantizeAndDequantizeV4; None if they are no n-bit integer range."""
    if not (isinstance(low, float) and isinstance(high, float)):
        return None
    bits = int(high + 1).bit_length() - 1
    if high < 1 or high != 2**bits - 1 or low not in (0.0, -high, -high - 1):
        return None
    signed = low < 0
    return {"signed_input": signed, "num_bits": bits + signed, "narrow_range": low == -high}


def fake_quantize_weight(w: Any, spec: QuantizerSpec, *, jit: bool = False) -> Any:
    """Return a floating-point weight rounded to the nearest values on the grid of its own range.

    The range is computed from `w` in every call, so it is always current; with `axis` in `spec` every slice along it
    has its own, with `block_size` every block. The codes of the result are those of `numerics.quantize(w,
    qparams_from_range(*weight_range(w, spec), spec))`, bit for bit; float16 and bfloat16 are computed in float32 and
    cast back. The gradient passes unchanged, because no weight lies outside its own range. All values that share a
    range with a NaN become NaN.

    `jit` compiles with XLA, once per shape: two to four times faster for large weights with ranges per channel.

    Example:
        >>> spec = QuantizerSpec(num_bits=4, narrow_range=True)
        >>> fake_quantize_weight(tf.constant([-7.0, 2.4]), spec).numpy()
        array([-7.,  2.], dtype=float32)
    """
    w = _floating(w)
    other_axes(w.shape.rank, spec.axis)  # raises an error if there is no such axis
    if w.shape.num_elements() == 0:
        return tf.identity(w)
    compute = _compiled_weight_function(spec) if jit else functools.partial(_fake_quantize_weight, spec=spec)

    @custom_gradient
    def straight_through(values: Any) -> tuple[Any, Callable[[Any], Any]]:
        return tf.cast(compute(tf.cast(values, tf.float32)), values.dtype), lambda upstream: upstream

    return straight_through(w)


def grid_tensors(minimum: Any, maximum: Any, spec: QuantizerSpec) -> tuple[Any, Bound, Bound]:
    """Return the scale, and the lowest and highest code minus the zero point, of the grid of a range.

    They have the same bits as those of `numerics.qparams_from_range`.
    """
    minimum, maximum = (tf.stop_gradient(tf.cast(end, tf.float32)) for end in (minimum, maximum))
    if spec.symmetric:
        scale = _scale(tf.maximum(tf.maximum(-minimum, maximum), 0.0), 2 ** (spec.num_bits - 1) - 1)
        zero_point = 0 if spec.signed else 2 ** (spec.num_bits - 1)
        return scale, float(spec.qmin - zero_point), float(spec.qmax - zero_point)
    low = tf.minimum(minimum, 0.0)
    scale = _scale(tf.maximum(maximum, 0.0) - low, spec.qmax - spec.qmin)
    first, last = float(spec.narrow_range), float(2**spec.num_bits - 1)
    place = first - low / scale
    whole = tf.floor(place)
    unsigned_zero_point = tf.clip_by_value(whole + tf.cast(place - whole >= 0.5, tf.float32), first, last)
    return scale, first - unsigned_zero_point, last - unsigned_zero_point


def _scale(width: Any, steps: int) -> Any:
    """Return width / steps, or `ZERO_SCALE` for a width that counts as zero; the divisor is no constant of the graph.

    A NaN width gives a NaN scale, so that every value on the grid of an unknown range is NaN.
    """
    is_zero = width < SMALLEST_WIDTH
    return tf.where(is_zero, ZERO_SCALE, width) / tf.where(is_zero, 1.0, float(steps))


def _own_range(values: Any, spec: QuantizerSpec) -> tuple[Any, Any]:
    """Return the lowest and the highest value per scale of a weight, shaped to broadcast against it."""
    others = other_axes(values.shape.rank, spec.axis)
    low = tf.reduce_min(values, axis=others, keepdims=True)
    return low, tf.reduce_max(values, axis=others, keepdims=True)


def _range_of_blocks(blocks: Any, values: Any, spec: QuantizerSpec) -> tuple[Any, Any]:
    """Return the lowest and the highest value per block of a weight, shaped to broadcast against `blocks`."""
    axis = block_axis(values, spec) + 1
    return tf.reduce_min(blocks, axis=axis, keepdims=True), tf.reduce_max(blocks, axis=axis, keepdims=True)


def _nearest(values: Any, low: Any, high: Any, spec: QuantizerSpec) -> Any:
    """Return a float32 weight rounded to the grid of the range [low, high], which contains all its values."""
    if spec.symmetric:
        width = tf.maximum(-low, high)  # not from absolute values, which would be a copy of the weight
        scale = _scale(width, 2 ** (spec.num_bits - 1) - 1)
        return tf.math.rint(values / scale) * scale  # |values| <= width: no code can leave the grid
    scale, code_low, code_high = grid_tensors(low, high, spec)
    # Rounding the zero point shifts the grid against the range, so codes may lie beyond its ends.
    return tf.maximum(tf.minimum(tf.math.rint(values / scale), code_high), code_low) * scale


def _fake_quantize_weight(values: Any, spec: QuantizerSpec) -> Any:
    """Fake-quantize a float32 weight with the range of its own values."""
    if spec.block_size is not None:
        blocks = grouped(values, spec)
        return ungrouped(_nearest(blocks, *_range_of_blocks(blocks, values, spec), spec), values, spec)
    return _nearest(values, *_own_range(values, spec), spec)


def _compiled_weight_function(spec: QuantizerSpec) -> Callable[[Any], Any]:
    """Return `_fake_quantize_weight` for a grid, compiled by XLA; with reductions only for scales on the last axis."""

    def compute(values: Any) -> Any:
        if spec.block_size is not None:
            blocks = grouped(values, spec)
            return ungrouped(_compiled_nearest(spec)(blocks, *_range_of_blocks(blocks, values, spec)), values, spec)
        if spec.axis in (-1, values.shape.rank - 1):
            return _compiled_for_columns(spec)(values)
        return _compiled_nearest(spec)(values, *_own_range(values, spec))

    return compute


@functools.lru_cache(maxsize=64)
def _compiled_for_columns(spec: QuantizerSpec) -> Callable[[Any], Any]:
    """Return the function of a weight with ranges along its last axis, with reductions, compiled once per shape."""

    def compute(values: Any) -> Any:
        if spec.symmetric:
            width = largest_magnitudes(values)
            return _nearest(values, -width, width, spec)
        return _nearest(values, *column_extremes(values), spec)

    return tf.function(compute, jit_compile=True, autograph=False)


@functools.lru_cache(maxsize=64)
def _compiled_nearest(spec: QuantizerSpec) -> Callable[[Any, Any, Any], Any]:
    """Return `_nearest` for one grid, compiled once per shape; reductions stay outside, see `_column_extremes`."""
    return tf.function(functools.partial(_nearest, spec=spec), jit_compile=True, autograph=False)


def _floating(x: Any) -> Any:
    """Return `x` as a tensor; raise QuantizerError unless it is floating point."""
    x = tf.convert_to_tensor(x)
    if not x.dtype.is_floating:
        raise QuantizerError(f"Only floating-point tensors can be fake-quantized. Received: dtype={x.dtype.name}")
    return x


def along_axis(value: Bound, x: Any, spec: QuantizerSpec) -> Bound:
    """Return values of shape `(C,)`, or one per block, shaped to broadcast against `x`; single values unchanged.

    Raises:
        QuantizerError: If the tensor does not have the axis of `spec`.
    """
    # One value per slice along the last axis broadcasts as it is.
    if isinstance(value, float) or value.shape.rank == 0 or (spec.axis in (None, -1) and spec.block_size is None):
        return value
    if x.shape.rank is None:
        raise QuantizerError(f"A tensor of unknown rank has no other axis than -1. Received: {spec}")
    if spec.block_size is not None:
        return spread_tensor(value, x, spec)
    shape = [1] * x.shape.rank
    other_axes(x.shape.rank, spec.axis)
    shape[int(spec.axis or 0)] = -1
    return tf.reshape(value, shape)


def _opaque(value: Any) -> Any:
    """Return a value that the graph optimizer cannot treat as a constant (see the top of the file)."""
    if tf.executing_eagerly():
        return value
    return tf.raw_ops.PlaceholderWithDefault(input=value, shape=value.shape)


def _masked(upstream: Any, x: Any, scale: Any, code_low: Bound, code_high: Bound, *, xla: bool) -> Any:
    """Return `upstream` where `x` lies within the grid, else 0."""
    return within(upstream, x, code_low * scale, code_high * scale, xla=xla)


def within(upstream: Any, x: Any, low: Bound, high: Bound, *, xla: bool) -> Any:
    """Return `upstream` where low <= x <= high, else 0.

    A fused kernel is used where possible: it takes a single range, has no XLA version, and on a GPU would read the
    range from host memory.

    Args:
        upstream: Tensor of the shape and dtype of `x`.
        x: Floating-point tensor.
        low: A float, or a tensor that broadcasts against `x`.
        high: Likewise.
        xla: Whether the graph is compiled by XLA.
    """
    several = any(not isinstance(end, float) and end.shape.rank != 0 for end in (low, high))
    if several or xla or tf.config.list_physical_devices("GPU"):
        return _mask_plain(upstream, x, low, high)
    return _mask_fused(upstream, x, low, high)


def above(bound: Bound) -> Bound:
    """Return the float32 number next to a bound from above, with which `within` leaves the bound itself out."""
    if isinstance(bound, float):
        return float(np.nextafter(np.float32(bound), np.float32(np.inf))) if bound else _SMALLEST_NUMBER
    return tf.where(bound == 0.0, _SMALLEST_NUMBER, tf.math.nextafter(bound, np.float32(np.inf)))


def below(bound: Bound) -> Bound:
    """Return the float32 number next to a bound from below."""
    return -above(-bound)


def _mask_fused(upstream: Any, x: Any, low: Any, high: Any) -> Any:
    """Return `upstream` where low <= x <= high, else 0, by one fused kernel."""
    # In float32, because a cast to half precision would move the bounds.
    if x.dtype in (tf.float16, tf.bfloat16):
        return tf.cast(_mask_fused(tf.cast(upstream, tf.float32), tf.cast(x, tf.float32), low, high), x.dtype)
    low, high = tf.cast(low, x.dtype), tf.cast(high, x.dtype)
    masked, _, _ = tf.raw_ops.QuantizeAndDequantizeV4Grad(
        gradients=upstream, input=x, input_min=low, input_max=high, axis=-1
    )
    return masked


def _mask_plain(upstream: Any, x: Any, low: Any, high: Any) -> Any:
    """Return `upstream` where low <= x <= high, else 0, by elementwise operations."""
    wide = tf.cast(x, tf.float32)
    inside = tf.logical_and(wide >= low, wide <= high)
    return tf.where(inside, upstream, tf.zeros([], upstream.dtype))
