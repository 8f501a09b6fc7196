"""Where the scales of a weight lie behind transposes and reshapes, which are carried out on its integers.

An array that holds the number of every element's scale is moved like the integers. Scales along an axis still do where
these numbers differ along one axis alone; a reshape that merges the axis with another repeats them, which is fine.
Blocks are found again as the longest pieces of an axis in which no number changes: a reshape that merges two axes may
cut them into shorter ones, each with the scale of the block that it is from.
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
        index: For every scale of the file the number of that of the encoding.
        block_size: The length of the blocks; None without blocks.
    """

    axis: int | None
    index: np.ndarray
    block_size: int | None = None


def moved(array: np.ndarray, movements: Sequence[Movement]) -> np.ndarray:
    """Return an array after some movements.

    Args:
        array: The array.
        movements: What each of them makes of an array.
    """
    for movement in movements:
        array = movement(array)
    return array


def moved_scales(encoding: Encoding, movements: Sequence[Movement]) -> MovedScales | None:
    """Return where the scales of a weight lie after movements; None where ONNX has no form for them.

    Args:
        encoding: A weight's encoding.
        movements: The movements.
    """
    if encoding.spec.axis is None:
        return MovedScales(None, np.zeros((), np.int64))
    shape = () if encoding.codes is None else encoding.codes.shape
    numbers = encoding.broadcast(np.arange(encoding.scale.size).reshape(encoding.scale.shape))
    numbers = moved(np.ascontiguousarray(np.broadcast_to(numbers, shape)), movements)
    if encoding.spec.block_size is not None:
        return _in_blocks(numbers, encoding.spec.block_size, encoding.spec.num_bits)
    expected = shape[encoding.spec.axis]
    for axis in sorted(range(numbers.ndim), key=lambda candidate: numbers.shape[candidate] != expected):
        lines = np.moveaxis(numbers, axis, 0).reshape(numbers.shape[axis], -1)
        if lines.size and np.all(lines == lines[:, :1]):
            return MovedScales(axis, lines[:, 0])
    return None


def moved_encoding(
    encoding: Encoding, movements: Sequence[Movement]
) -> tuple[np.ndarray, np.ndarray, np.ndarray, MovedScales]:
    """Return codes, scale and zero point after movements, and where the scales lie.

    Args:
        encoding: A weight's encoding.
        movements: The movements.

    Raises:
        ExportError: If ONNX has no form for where they lie.
    """
    codes = np.ascontiguousarray(moved(np.asarray(encoding.codes), movements)).astype(encoding.dtype)
    found = moved_scales(encoding, movements)
    if found is None:
        raise ExportError(f"The scales of a weight lie along no single axis. Received: axis={encoding.spec.axis}")
    if found.axis is None:
        return codes, encoding.scale, encoding.zero_point, found
    return codes, encoding.scale.reshape(-1)[found.index], encoding.zero_point.reshape(-1)[found.index], found


def _in_blocks(numbers: np.ndarray, block: int, num_bits: int) -> MovedScales | None:
    """Return the blocks in which the scale's number does not change: those of the axis where they are longest.

    One block along an axis of a matrix is a scale per slice of the other axis, which more runtimes read, and integer
    kernels too; as a block it stays only where ONNX Runtime's kernel for 4 bits takes it.
    """
    lengths = [(_length(numbers, axis, block), axis) for axis in range(numbers.ndim)]
    length, axis = max(lengths, key=lambda found: (found[0], -found[1]))
    if length < min(block, _SHORTEST):
        return None
    has_kernel = num_bits <= _FEW_BITS and length >= _SHORTEST and not length & (length - 1)
    if length >= numbers.shape[axis] and numbers.ndim == 2 and not has_kernel:
        return MovedScales(1 - axis, np.take(numbers, 0, axis))
    starts = np.arange(0, numbers.shape[axis], length)
    return MovedScales(axis, np.take(numbers, starts, axis), length)


def _length(numbers: np.ndarray, axis: int, block: int) -> int:
    """Return the length of the blocks along an axis: `block` where it holds only one, 0 for an axis of size 1."""
    size = numbers.shape[axis]
    if size < 2:
        return 0
    lines = np.moveaxis(numbers, axis, 0).reshape(size, -1)
    changes = np.flatnonzero(np.any(lines[1:] != lines[:-1], axis=1)) + 1
    return math.gcd(*map(int, changes)) if changes.size else max(block, size)
