"""TFMOT's default schemes: the bit widths, and whether convolutions have one scale per output channel."""

from __future__ import annotations

import dataclasses
import numbers


@dataclasses.dataclass(frozen=True)
class DefaultQuantizeScheme:
    """Base class of TFMOT's default schemes.

    Args:
        disable_per_axis: Use one scale per tensor for weights of convolutions, instead of one per output channel.
        num_bits_weight: Width of the weights' integers.
        num_bits_activation: Width of the activations' integers.
    """

    disable_per_axis: bool = False
    num_bits_weight: int = 8
    num_bits_activation: int = 8

    def __post_init__(self) -> None:
        # Configs are made of the widths, and saved with the model.
        for field in ("num_bits_weight", "num_bits_activation"):
            width = getattr(self, field)
            if not isinstance(width, bool) and isinstance(width, numbers.Integral):  # also one of NumPy
                object.__setattr__(self, field, int(width))


class Default8BitQuantizeScheme(DefaultQuantizeScheme):
    """TFMOT's default scheme.

    Args:
        disable_per_axis: Use one scale per tensor for weights of convolutions, instead of one per output channel.

    Example:
        >>> Default8BitQuantizeScheme(disable_per_axis=True).num_bits_weight
        8
    """

    def __init__(self, disable_per_axis: bool = False) -> None:
        super().__init__(disable_per_axis)


class DefaultNBitQuantizeScheme(DefaultQuantizeScheme):
    """TFMOT's experimental scheme for other bit widths; takes the arguments of `DefaultQuantizeScheme`.

    Example:
        >>> DefaultNBitQuantizeScheme(num_bits_weight=4).num_bits_activation
        8
    """
