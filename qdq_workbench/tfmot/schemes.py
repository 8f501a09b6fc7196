"""TFMOT's default schemes as objects: which widths, and whether convolutions have a scale per output channel."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True)
class DefaultQuantizeScheme:
    """What TFMOT's default schemes have in common.

    Args:
        disable_per_axis: Give weights of convolutions one scale instead of one per output channel.
        num_bits_weight: Width of the weights' integers.
        num_bits_activation: Width of the activations' integers.
    """

    disable_per_axis: bool = False
    num_bits_weight: int = 8
    num_bits_activation: int = 8


class Default8BitQuantizeScheme(DefaultQuantizeScheme):
    """TFMOT's default scheme.

    Args:
        disable_per_axis: Give weights of convolutions one scale instead of one per output channel.

    Example:
        >>> Default8BitQuantizeScheme(disable_per_axis=True).num_bits_weight
        8
    """

    def __init__(self, disable_per_axis: bool = False) -> None:
        super().__init__(disable_per_axis)


class DefaultNBitQuantizeScheme(DefaultQuantizeScheme):
    """TFMOT's experimental scheme of other widths; takes the arguments of `DefaultQuantizeScheme`.

    Example:
        >>> DefaultNBitQuantizeScheme(num_bits_weight=4).num_bits_activation
        8
    """
