"""How one tensor is quantized: the grid, without the range.

A `QuantizerSpec` is what PyTorch's PT2E calls a `QuantizationSpec`; here that name is taken by the user's
intent for a whole model.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from qdq_workbench.errors import QuantizerError

MIN_BITS, MAX_BITS = 2, 16


@dataclasses.dataclass(frozen=True)
class QuantizerSpec:
    """The integer grid on which a tensor is represented.

    Args:
        num_bits: Width of the integers, 2 to 16.
        signed: Signed integers (int8) rather than unsigned ones (uint8).
        symmetric: Zero point in the middle of the grid (0 when signed, `2 ** (num_bits - 1)` when unsigned).
        narrow_range: Leave out the lowest level, so that a signed grid is symmetric around zero.
        axis: The axis of the tensor along which every slice has its own scale; None for one scale in all.

    Raises:
        QuantizerError: If `num_bits` is not an integer from 2 to 16 or `axis` is not an integer or None.

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

    def __post_init__(self) -> None:
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
    def label(self) -> str:
        """A short name for tables, such as `int8` or `uint8`, with `/axis` where the grid is per axis."""
        name = f"{'int' if self.signed else 'uint'}{self.num_bits}"
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
        """Return the fields as a JSON-compatible dictionary."""
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> QuantizerSpec:
        """Rebuild a spec from `to_dict`.

        Args:
            data: What `to_dict` returned.
        """
        return cls(**data)
