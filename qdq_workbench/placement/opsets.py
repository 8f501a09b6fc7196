"""The ONNX opset of a file where its user leaves it open, and what depends on it."""

from __future__ import annotations

from collections.abc import Iterable

from qdq_workbench.spec.quantizer_spec import QuantizerSpec

#: From the second one on, ONNX has 4-bit and 16-bit integers, and blocks.
DEFAULT_OPSET, WIDE_INTEGER_OPSET = 17, 21
_BITS, _PACKED_BITS = 8, 4


def least_opset(grids: Iterable[QuantizerSpec]) -> int:
    """Return the opset that `export_onnx` writes by default: a newer one where 16-bit integers or blocks need it.

    Example:
        >>> least_opset([QuantizerSpec(num_bits=4)]), least_opset([QuantizerSpec(num_bits=16)])
        (17, 21)
    """
    wide = any(grid.num_bits > _BITS or grid.block_size is not None for grid in grids)
    return WIDE_INTEGER_OPSET if wide else DEFAULT_OPSET


def is_packed(grid: QuantizerSpec, opset: int) -> bool:
    """Return whether a file holds a weight as INT4 or UINT4, two in a byte; below opset 21 it holds 8-bit integers.

    Example:
        >>> is_packed(QuantizerSpec(num_bits=4), opset=17), is_packed(QuantizerSpec(num_bits=4), opset=21)
        (False, True)
    """
    return grid.num_bits <= _PACKED_BITS and opset >= WIDE_INTEGER_OPSET
