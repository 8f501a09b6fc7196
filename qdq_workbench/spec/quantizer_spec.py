"""The quantization of one tensor: the grid, without the range.

A `QuantizerSpec` is what PyTorch's PT2E calls a `QuantizationSpec`; here that is the name of the user's specification
for a whole model.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from qdq_workbench._numbers import whole
from qdq_workbench.errors import QuantizerError

MIN_BITS, MAX_BITS = 2, 16


def is_block_size(value: object) -> bool:
    """Return whether a value is a valid number of values that share a scale: an integer from 2 on."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= 2


@dataclasses.dataclass(frozen=True)
class QuantizerSpec:
    """The integer grid on which a tensor is represented.

    Args:
        num_bits: Width of the integers, 2 to 16.
        signed: Signed integers (int8) rather than unsigned ones (uint8).
        symmetric: Zero point in the middle of the grid (0 when signed, `2 ** (num_bits - 1)` when unsigned).
        narrow_range: Leave out the lowest level, so that a signed grid is symmetric around zero.
        axis: The axis of the tensor along which every slice has its own scale; None for one scale in all.
        block_size: How many values along `axis` share a scale, at least 2; the last block may be shorter. All other
            axes then have scales of their own, as in ONNX DequantizeLinear from opset 21 on: a weight of shape (K, N)
            with blocks of B along axis 0 has scales of shape (ceil(K / B), N). None for no blocks.

    Raises:
        QuantizerError: If `num_bits` is not an integer from 2 to 16, `axis` is not an integer or None, or there are
            blocks of fewer than 2 values or without an axis.

    Example:
        >>> spec = QuantizerSpec(num_bits=4, narrow_range=True)
        >>> spec.qmin, spec.qmax
        (-7, 7)
    """

    num_bits: int = 8
    signed: bool = True
    symmetric: bool = True
    narrow_range: bool = False
    axis: int | None = None
    block_size: int | None = None

    def __post_init__(self) -> None:
        for field in ("num_bits", "axis", "block_size"):
            object.__setattr__(self, field, whole(getattr(self, field)))
        if (
            isinstance(self.num_bits, bool)
            or not isinstance(self.num_bits, int)
            or not MIN_BITS <= self.num_bits <= MAX_BITS
        ):
            raise QuantizerError(
                f"num_bits must be an integer from {MIN_BITS} to {MAX_BITS}. Received: num_bits={self.num_bits!r}"
            )
        if self.axis is not None and (isinstance(self.axis, bool) or not isinstance(self.axis, int)):
            raise QuantizerError(
                "axis must be an integer (one scale per slice along that axis) or None (one scale per tensor). "
                f"Received: axis={self.axis!r}"
            )
        if self.block_size is not None and not is_block_size(self.block_size):
            raise QuantizerError(
                "block_size must be an integer of at least 2 (so many values along axis share a scale) or None. "
                f"Received: block_size={self.block_size!r}"
            )
        if self.block_size is not None and self.axis is None:
            raise QuantizerError(
                "Blocks lie along an axis, that over which a layer sums up products; give one. "
                f"Received: block_size={self.block_size}, axis=None"
            )

    @property
    def qmin(self) -> int:
        """The lowest integer of the grid."""
        lowest = -(2 ** (self.num_bits - 1)) if self.signed else 0
        return lowest + int(self.narrow_range)

    @property
    def qmax(self) -> int:
        """The highest integer of the grid."""
        return 2 ** (self.num_bits - 1) - 1 if self.signed else 2**self.num_bits - 1

    @property
    def fills_type(self) -> bool:
        """Whether the grid has every value of its type of 8 or 16 bits; otherwise a file clips activations to it."""
        return self.num_bits in (8, 16) and not self.narrow_range

    @property
    def label(self) -> str:
        """A short name for tables, such as `int8`, `int8/axis 3` or `int4/blocks of 32 on axis 0`."""
        name = f"{'int' if self.signed else 'uint'}{self.num_bits}"
        if self.block_size is not None:
            return f"{name}/blocks of {self.block_size} on axis {self.axis}"
        return name if self.axis is None else f"{name}/axis {self.axis}"

    def replace(self, **changes: Any) -> QuantizerSpec:
        """Return a copy with some fields changed.

        Args:
            **changes: Fields of this class with their new values.

        Example:
            >>> QuantizerSpec().replace(axis=3).axis
            3
        """
        return dataclasses.replace(self, **changes)

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as a JSON-compatible dictionary; without `block_size` where there are no blocks."""
        fields = dataclasses.asdict(self)
        return fields if self.block_size is not None else {k: v for k, v in fields.items() if k != "block_size"}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> QuantizerSpec:
        """Rebuild a spec from `to_dict`.

        Args:
            data: The result of `to_dict`.
        """
        return cls(**data)
