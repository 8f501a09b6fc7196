"""A quantizer with a moving average of the ranges of the batches."""

from __future__ import annotations

from typing import Any

import keras
import tensorflow as tf

from qdq_workbench.errors import QuantizerError
from qdq_workbench.quantizers.quantizer import Quantizer

_MOMENTUM = 0.99


@keras.saving.register_keras_serializable(package="qdq_workbench")
class MovingAverageQuantizer(Quantizer):
    """Quantizer with a moving average of the ranges of the batches; intended for activations.

        range <- batch range                                        first batch
        range <- momentum * range + (1 - momentum) * batch range    later batches

    (Jacob et al. 2018, arXiv:1712.05877, section 3.1.)

    Args:
        num_bits: Width of the integers, 2 to 16.
        per_axis: One range per slice along `axis` rather than one per tensor.
        symmetric: Zero point in the middle of the grid.
        narrow_range: Exclude the lowest integer.
        signed: Signed integers rather than unsigned ones.
        axis: The axis of `per_axis`.
        block_size: Number of values along `axis` that share a range, at least 2; positions on other axes do not share
            one. Needs `per_axis`. None for no blocks.
        momentum: Weight of the current range, at least 0 and below 1.

    Raises:
        QuantizerError: If the settings give no valid grid or `momentum` is outside [0, 1).

    Example:
        >>> MovingAverageQuantizer(momentum=0.9).get_config()["momentum"]
        0.9
    """

    method_name = "moving_average"

    def __init__(
        self,
        num_bits: int = 8,
        per_axis: bool = False,
        symmetric: bool = True,
        narrow_range: bool = False,
        *,
        signed: bool = True,
        axis: int = -1,
        block_size: int | None = None,
        momentum: float = _MOMENTUM,
    ) -> None:
        super().__init__(num_bits, per_axis, symmetric, narrow_range, signed=signed, axis=axis, block_size=block_size)
        if not 0.0 <= momentum < 1.0:
            raise QuantizerError(f"momentum must be at least 0 and below 1. Received: momentum={momentum!r}")
        self.momentum = float(momentum)

    def merge(self, low: Any, high: Any, batch_low: Any, batch_high: Any) -> tuple[Any, Any]:
        """Return the moving average of the range and the batch's range; for the first batch, the batch's range.

        Args:
            low: Lowest value so far; +infinity before the first batch.
            high: Highest value so far; -infinity before the first batch.
            batch_low: Lowest value of the batch.
            batch_high: Highest value of the batch.
        """
        keep = self.momentum
        has_range = low <= high
        # Not finite before the first batch, but then not selected either.
        average_low = keep * low + (1.0 - keep) * batch_low
        average_high = keep * high + (1.0 - keep) * batch_high
        return tf.where(has_range, average_low, batch_low), tf.where(has_range, average_high, batch_high)

    def method_settings(self) -> dict[str, Any]:
        """Return the momentum, unless it is the default."""
        return {} if self.momentum == _MOMENTUM else {"momentum": self.momentum}

    def get_config(self) -> dict[str, Any]:
        """Return the constructor's arguments."""
        return {**super().get_config(), "momentum": self.momentum}
