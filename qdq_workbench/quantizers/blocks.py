"""Shapes of scales and the values that share a scale: per tensor, per slice along an axis, or per block.

    no axis               scales of shape ()
    axis                  (C,)                           x[..., c, ...] has scale[c]
    axis and block size   (.., ceil(C / block), ..)      x[.., c, ..] has scale[.., c // block, ..]

With blocks every other axis keeps its size, as in ONNX DequantizeLinear from opset 21 on. The last block is shorter if
the size of the axis is no multiple of the block size.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from qdq_workbench.errors import DataError, QuantizerError
from qdq_workbench.spec.quantizer_spec import QuantizerSpec

Array = npt.NDArray[Any]


def other_axes(rank: int, axis: int | None) -> tuple[int, ...]:
    """Return the axes over which a scale is shared: all but `axis`, or all for None; QuantizerError for no such axis.

    Example:
        >>> other_axes(4, -1)
        (0, 1, 2)
    """
    if axis is None:
        return tuple(range(rank))
    if not -rank <= axis < rank:
        raise QuantizerError(f"A tensor of rank {rank} has no such axis. Received: axis={axis}")
    return tuple(index for index in range(rank) if index != axis % rank)


def scale_shape(shape: Sequence[int], spec: QuantizerSpec) -> tuple[int, ...]:
    """Return the shape of the scales of a tensor; raise QuantizerError if a tensor of this rank has no such axis.

    Example:
        >>> scale_shape((70, 8), QuantizerSpec(axis=0, block_size=32))
        (3, 8)
    """
    if spec.axis is None:
        return ()
    other_axes(len(shape), spec.axis)  # raises an error if there is no such axis
    if spec.block_size is None:
        return (int(shape[spec.axis]),)
    return _with_blocks(shape, spec.axis % len(shape), spec.block_size)


def spread(values: Array, shape: Sequence[int], spec: QuantizerSpec) -> Array:
    """Return values in the shape of the scales, or a single one, in a shape that broadcasts against a tensor.

    Without an axis in the grid, several values lie along the last one. DataError is raised if the values do not fit the
    shape.
    """
    values = np.asarray(values)
    if values.ndim == 0:
        return values
    axis = spec.axis if spec.axis is not None else -1
    if spec.block_size is None:
        if not -len(shape) <= axis < len(shape) or shape[axis] != values.size or values.ndim != 1:
            raise DataError(
                f"The tensor must have {values.size} slices on axis {axis}, one a scale. Received: shape={tuple(shape)}"
            )
        return values.reshape([-1 if index == axis % len(shape) else 1 for index in range(len(shape))])
    if not -len(shape) <= axis < len(shape) or values.shape != scale_shape(shape, spec):
        raise DataError(
            f"Scales of shape {values.shape} do not fit blocks of {spec.block_size} on axis {axis}. "
            f"Received: shape={tuple(shape)}"
        )
    wide = np.repeat(values, spec.block_size, axis)
    return np.take(wide, np.arange(shape[axis]), axis)


def extremes(values: Array, spec: QuantizerSpec) -> tuple[Array, Array]:
    """Return the lowest and the highest value per scale of an array with elements, in the shape of the scales."""
    if spec.block_size is None:
        others = other_axes(values.ndim, spec.axis)
        return np.asarray(values.min(axis=others)), np.asarray(values.max(axis=others))
    axis = int(spec.axis or 0) % values.ndim
    starts = np.arange(0, values.shape[axis], spec.block_size)
    return np.minimum.reduceat(values, starts, axis), np.maximum.reduceat(values, starts, axis)


def _with_blocks(shape: Sequence[int], axis: int, block: int) -> tuple[int, ...]:
    return tuple(-(-int(size) // block) if index == axis else int(size) for index, size in enumerate(shape))
