"""What `blocks` does with arrays, on TensorFlow tensors whose sizes need not be known before a function runs.

A tensor (.., C, ..) whose blocks of B lie along an axis is turned into (.., ceil(C / B), B, ..), zeros behind a last
block that is shorter: 0 is on every grid and in every range.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from qdq_workbench.quantizers.blocks import other_axes
from qdq_workbench.spec.quantizer_spec import QuantizerSpec


def grouped(x: Any, spec: QuantizerSpec) -> Any:
    """Return a tensor with its blocks along an axis of their own, the one behind `block_axis`.

    Args:
        x: Tensor of known rank.
        spec: A grid with blocks.
    """
    axis, size = block_axis(x, spec), _size(spec)
    shape = tf.shape(x)
    count = -(-shape[axis] // size)
    padding = [[0, count * size - shape[axis]] if index == axis else [0, 0] for index in range(x.shape.rank)]
    return tf.reshape(tf.pad(x, padding), tf.concat([shape[:axis], [count, size], shape[axis + 1 :]], 0))


def ungrouped(groups: Any, like: Any, spec: QuantizerSpec) -> Any:
    """Return a tensor from what `grouped` made of it.

    Args:
        groups: What `grouped` returned, or something of that shape.
        like: A tensor of the shape that is wanted.
        spec: The grid.
    """
    axis, shape = block_axis(like, spec), tf.shape(like)
    flat = tf.reshape(groups, tf.concat([shape[:axis], [-1], shape[axis + 1 :]], 0))
    result = tf.slice(flat, tf.zeros_like(shape), shape)
    result.set_shape(like.shape)
    return result


def reduced(reduce: Callable[..., Any], x: Any, spec: QuantizerSpec) -> Any:
    """Reduce a tensor over the values that share a scale; the result has the shape of the scales.

    Args:
        reduce: Such as `tf.reduce_max`. A last block that is shorter has zeros behind it.
        x: Tensor of known rank.
        spec: The grid.
    """
    if spec.block_size is not None:
        return reduce(grouped(x, spec), axis=block_axis(x, spec) + 1)
    return reduce(x, axis=None if spec.axis is None else other_axes(x.shape.rank, spec.axis))


def spread(values: Any, x: Any, spec: QuantizerSpec) -> Any:
    """Return one value per block as one per element.

    Args:
        values: In the shape of the scales.
        x: A tensor of known rank, in whose shape they are wanted.
        spec: A grid with blocks.
    """
    axis, shape = block_axis(x, spec), tf.shape(x)
    wide = tf.repeat(values, _size(spec), axis=axis)
    return tf.slice(wide, tf.zeros_like(shape), shape)


def block_axis(x: Any, spec: QuantizerSpec) -> int:
    """Return the axis along which the blocks of a tensor lie, counted from 0.

    Args:
        x: Tensor of known rank.
        spec: A grid with blocks.
    """
    axis, rank = int(spec.axis or 0), x.shape.rank
    other_axes(rank, axis)
    return int(axis % rank)


def _size(spec: QuantizerSpec) -> int:
    return int(spec.block_size or 1)
