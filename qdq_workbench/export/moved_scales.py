"""The axis of a weight's scales after transposes and reshapes, which are applied to its integers.

An array with the index of every element's scale is moved like the integers. The scales lie along one axis if these
indexes vary along that axis alone; a reshape that merges it with another axis repeats them. Blocks are the longest
equal pieces of an axis with one index each: a reshape that merges two axes may cut them into shorter ones, each with
the scale of the block that it was a part of.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence

import numpy as np

from qdq_workbench.errors import ExportError
from qdq_workbench.export.encodings import Encoding

Movement = Callable[[np.ndarray], np.ndarray]
# The shortest blocks that a weight may be cut into: ONNX Runtime's kernel takes none below it, and the scales of
# shorter ones would weigh more than the integers.
_SHORTEST = 16
_FEW_BITS = 4


@dataclasses.dataclass(frozen=True)
class MovedScales:
    """The scales of a weight in the layout of a file.

    Args:
        axis: The axis that they or their blocks lie along; None for one scale.
        index: For every scale of the file, the flat index of its scale in the encoding.
        block_size: The length of the blocks; None without blocks.
    """

    axis: int | None
    index: np.ndarray
    block_size: int | None = None


def moved(array: np.ndarray, movements: Sequence[Movement]) -> np.ndarray:
    """Return an array after some movements."""
    for movement in movements:
        array = movement(array)
    return array


def moved_scales(encoding: Encoding, movements: Sequence[Movement]) -> MovedScales | None:
    """Return the axis and order of a weight's scales after movements; None where ONNX has no form for them."""
    if encoding.spec.axis is None:
        return MovedScales(None, np.zeros((), np.int64))
    shape = () if encoding.codes is None else encoding.codes.shape
    numbers = encoding.broadcast(np.arange(encoding.scale.size).reshape(encoding.scale.shape))
    numbers = moved(np.ascontiguousarray(np.broadcast_to(numbers, shape)), movements)
    if encoding.spec.block_size is not None:
        return _in_blocks(numbers, encoding.spec.block_size, encoding.spec.num_bits)
    expected = shape[encoding.spec.axis]
    # The axes of the original length come first: with a single scale several axes qualify, and a longer one would
    # repeat it. Of those the axis itself, where nothing moves it: a kernel of one row and one column has two.
    own = None if movements else encoding.spec.axis % len(shape)
    for axis in sorted(range(numbers.ndim), key=lambda axis: (numbers.shape[axis] != expected, axis != own)):
        lines = np.moveaxis(numbers, axis, 0).reshape(numbers.shape[axis], -1)
        if lines.size and np.all(lines == lines[:, :1]):
            return MovedScales(axis, lines[:, 0])
    return None


def moved_encoding(
    encoding: Encoding, movements: Sequence[Movement]
) -> tuple[np.ndarray, np.ndarray, np.ndarray, MovedScales]:
    """Return codes, scales and zero points of a weight after movements, and the axis of the scales.

    Raises:
        ExportError: If ONNX has no form for the moved scales.
    """
    codes = np.ascontiguousarray(moved(np.asarray(encoding.codes), movements)).astype(encoding.dtype)
    found = moved_scales(encoding, movements)
    if found is None:
        raise ExportError(f"The scales of a weight lie along no single axis. Received: axis={encoding.spec.axis}")
    if found.axis is None:
        return codes, encoding.scale, encoding.zero_point, found
    return codes, encoding.scale.reshape(-1)[found.index], encoding.zero_point.reshape(-1)[found.index], found


def _in_blocks(numbers: np.ndarray, block: int, num_bits: int) -> MovedScales | None:
    """Return the blocks along the axis where they are longest; None where all are too short.

    A matrix with one block along an axis gets one scale per slice of the other axis, which more runtimes and integer
    kernels read; it stays a block only if ONNX Runtime's 4-bit kernel takes it.
    """
    lengths = [(_length(numbers, axis, block), axis) for axis in range(numbers.ndim)]
    length, axis = max(lengths, key=lambda found: (found[0], -found[1]))
    # Blocks that the specification makes shorter than the limit stay as they are.
    if length < min(block, _SHORTEST):
        return None
    # MatMulNBits takes blocks whose length is a power of two, from 16 on.
    has_kernel = num_bits <= _FEW_BITS and length >= _SHORTEST and not length & (length - 1)
    if length >= numbers.shape[axis] and numbers.ndim == 2 and not has_kernel:
        return MovedScales(1 - axis, np.take(numbers, 0, axis))
    starts = np.arange(0, numbers.shape[axis], length)
    return MovedScales(axis, np.take(numbers, starts, axis), length)


def _length(numbers: np.ndarray, axis: int, block: int) -> int:
    """Return the length of the blocks along an axis: at least its size if it has only one, 0 for an axis of size 1."""
    size = numbers.shape[axis]
    if size < 2:
        return 0
    lines = np.moveaxis(numbers, axis, 0).reshape(size, -1)
    changes = np.flatnonzero(np.any(lines[1:] != lines[:-1], axis=1)) + 1
    # Blocks of one length: it has to divide every position at which the scale changes.
    return math.gcd(*map(int, changes)) if changes.size else max(block, size)
