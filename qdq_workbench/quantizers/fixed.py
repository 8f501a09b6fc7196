"""A quantizer with a fixed range."""

from __future__ import annotations

import math
from typing import Any

import keras

from qdq_workbench.errors import QuantizerError
from qdq_workbench.quantizers.quantizer import Quantizer


@keras.saving.register_keras_serializable(package="qdq_workbench")
class FixedQuantizer(Quantizer):
    """Quantizer with a range that training never changes; intended for tensors such as the output of a softmax.

    Args:
        init_min: Lowest value of the range.
        init_max: Highest value of the range.
        num_bits: Width of the integers, 2 to 16.
        per_axis: One range per slice along `axis` rather than one per tensor.
        symmetric: Zero point in the middle of the grid.
        narrow_range: Exclude the lowest integer.
        signed: Signed integers rather than unsigned ones.
        axis: The axis of `per_axis`.
        block_size: Number of values along `axis` that share a range, at least 2; positions on other axes do not share
            one. Needs `per_axis`. None for no blocks.

    Raises:
        QuantizerError: If the settings give no valid grid, or the range is not finite with
            `init_min <= init_max`.

    Example:
        >>> FixedQuantizer(0.0, 1.0, signed=False, symmetric=False).initial_range()
        (0.0, 1.0)
    """

    updates_range = False
    method_name = "fixed"

    def __init__(
        self,
        init_min: float,
        init_max: float,
        num_bits: int = 8,
        per_axis: bool = False,
        symmetric: bool = True,
        narrow_range: bool = False,
        *,
        signed: bool = True,
        axis: int = -1,
        block_size: int | None = None,
    ) -> None:
        super().__init__(num_bits, per_axis, symmetric, narrow_range, signed=signed, axis=axis, block_size=block_size)
        if not (math.isfinite(init_min) and math.isfinite(init_max) and init_min <= init_max):
            raise QuantizerError(
                "A fixed range must be finite with init_min <= init_max. "
                f"Received: init_min={init_min!r}, init_max={init_max!r}"
            )
        self.init_min, self.init_max = float(init_min), float(init_max)

    def merge(self, low: Any, high: Any, batch_low: Any, batch_high: Any) -> tuple[Any, Any]:  # noqa: ARG002 (the interface)
        """Return the range unchanged.

        Args:
            low: Lowest value of the range.
            high: Highest value of the range.
            batch_low: Not used.
            batch_high: Not used.
        """
        return low, high

    def initial_range(self) -> tuple[float, float]:
        """Return the fixed range."""
        return self.init_min, self.init_max

    def method_settings(self) -> dict[str, Any]:
        """Return the range."""
        return {"init_min": self.init_min, "init_max": self.init_max}

    def get_config(self) -> dict[str, Any]:
        """Return the constructor's arguments."""
        return {"init_min": self.init_min, "init_max": self.init_max, **super().get_config()}
