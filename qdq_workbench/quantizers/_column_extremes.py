"""Lowest and highest values per slice along the last axis, for functions that XLA compiles on the CPU.

XLA delegates float32 reductions to YNNPACK. All weights of one shape share an executable, TensorFlow runs it on
several threads, and if two threads are the first to run such a reduction, both append to one list of constants without
a lock (TensorFlow 2.21; observed as a segmentation fault in DenseNet121). XLA compiles integer reductions itself, so
the bits of the floats are reduced as integers, in an encoding that preserves the order:

    max |x| = float(max(bits(x) & 0x7fffffff))
    key(x)  = bits(x) ^ ((bits(x) >> 31) & 0x7fffffff)      increases with x, and is its own inverse
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import tensorflow as tf

_ALL_BUT_SIGN = 0x7FFFFFFF
_MOST_ROWS = 256  # reducing over more rows at once touches more memory pages than the TLB holds


def largest_magnitudes(values: Any) -> Any:
    """Return the highest absolute value of every slice of float32 along the last axis, in shape `(1, ..., 1, C)`.

    Example:
        >>> largest_magnitudes(tf.constant([[1.0, -2.0], [-3.0, 0.5]])).numpy()
        array([[3., 2.]], dtype=float32)
    """
    # The bits of a NaN are above those of infinity, so a NaN becomes the maximum and spoils its slice, as it must.
    magnitudes = tf.bitwise.bitwise_and(tf.bitcast(values, tf.int32), _ALL_BUT_SIGN)
    return tf.bitcast(_reduced(tf.reduce_max, magnitudes), tf.float32)


def column_extremes(values: Any) -> tuple[Any, Any]:
    """Return the lowest and highest value of every slice of float32 along the last axis, in shape `(1, ..., 1, C)`.

    Example:
        >>> low, high = column_extremes(tf.constant([[1.0, -2.0], [-3.0, 0.5]]))
        >>> low.numpy(), high.numpy()
        (array([[-3., -2.]], dtype=float32), array([[1. , 0.5]], dtype=float32))
    """
    keys = _key(tf.bitcast(values, tf.int32))
    low, high = (_key(_reduced(reduce, keys)) for reduce in (tf.reduce_min, tf.reduce_max))
    return tf.bitcast(low, tf.float32), tf.bitcast(high, tf.float32)


def _key(bits: Any) -> Any:
    """Return integers in the order of the floats with these bits; applied again, the bits."""
    return tf.bitwise.bitwise_xor(bits, tf.bitwise.bitwise_and(tf.bitwise.right_shift(bits, 31), _ALL_BUT_SIGN))


def _reduced(reduce: Callable[..., Any], values: Any) -> Any:
    """Reduce all axes but the last in two steps, the first over few rows, for the locality of memory accesses."""
    *others, channels = values.shape.as_list()
    count = math.prod(others)
    rows = next(rows for rows in range(min(count, _MOST_ROWS), 0, -1) if count % rows == 0)
    part = reduce(tf.reshape(values, (rows, count // rows * channels)), axis=0)
    return tf.reshape(reduce(tf.reshape(part, (-1, channels)), axis=0), [1] * len(others) + [channels])
