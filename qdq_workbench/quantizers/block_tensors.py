"""The functions of `blocks` for TensorFlow tensors with dynamic sizes.

A tensor (.., C, ..) with blocks of B along an axis is reshaped to (.., ceil(C / B), B, ..), with a shorter last block
padded by zeros: 0 is on every grid and in every range.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from qdq_workbench.quantizers.blocks import other_axes
from qdq_workbench.spec.quantizer_spec import QuantizerSpec


def grouped(x: Any, spec: QuantizerSpec) -> Any:
    """Return a tensor of known rank with the elements of its blocks along a new axis, the one after `block_axis`."""
    axis, size = block_axis(x, spec), _size(spec)
    shape = tf.shape(x)
    count = -(-shape[axis] // size)
    padding = [[0, count * size - shape[axis]] if index == axis else [0, 0] for index in range(x.shape.rank)]
    return tf.reshape(tf.pad(x, padding), tf.concat([shape[:axis], [count, size], shape[axis + 1 :]], 0))


def ungrouped(groups: Any, like: Any, spec: QuantizerSpec) -> Any:
    """Return the inverse of `grouped`, in the shape of the tensor `like`."""
    axis, shape = block_axis(like, spec), tf.shape(like)
    flat = tf.reshape(groups, tf.concat([shape[:axis], [-1], shape[axis + 1 :]], 0))
    result = tf.slice(flat, tf.zeros_like(shape), shape)
    result.set_shape(like.shape)
    return result


def reduced(reduce: Callable[..., Any], x: Any, spec: QuantizerSpec) -> Any:
    """Reduce a tensor over the values that share a scale; the result has the shape of the scales.

    Args:
        reduce: A reduction such as `tf.reduce_max`; a shorter last block is padded by zeros for it.
        x: Tensor of known rank.
        spec: The grid.
    """
    if spec.block_size is not None:
        return reduce(grouped(x, spec), axis=block_axis(x, spec) + 1)
    return reduce(x, axis=None if spec.axis is None else other_axes(x.shape.rank, spec.axis))


def spread_tensor(values: Any, x: Any, spec: QuantizerSpec) -> Any:
    """Return values per block, in the shape of the scales, repeated for every element of a tensor of known rank."""
    axis, shape = block_axis(x, spec), tf.shape(x)
    wide = tf.repeat(values, _size(spec), axis=axis)
    return tf.slice(wide, tf.zeros_like(shape), shape)


def block_axis(x: Any, spec: QuantizerSpec) -> int:
    """Return the nonnegative axis along which the blocks of a tensor of known rank lie."""
    # A grid with blocks has an axis; `or 0` satisfies the type checker only.
    axis, rank = int(spec.axis or 0), x.shape.rank
    other_axes(rank, axis)  # raises an error if there is no such axis
    return int(axis % rank)


def _size(spec: QuantizerSpec) -> int:
    return int(spec.block_size or 1)
