"""TFMOT's quantizers with TFMOT's ranges.

With R = -1 on a narrow grid of n bits and R = -(2^n - 2) / 2^n on a wide one, the range of a batch is

    asymmetric   min(lowest, 0), max(highest, 0)
    symmetric    min(lowest, highest / R), max(highest, lowest * R)

It is assigned (`LastValueQuantizer`), averaged with decay 0.999 (`MovingAverageQuantizer`) or merged
(`AllValuesQuantizer`). The initial range is (-6, 6) for the first two, (0, 0) for the last. The scale of a symmetric
grid is max / (2^(n-1) - 1).

Deliberate differences: ties are rounded to even, as by ONNX QuantizeLinear (TFMOT rounds them up); `FixedQuantizer`
uses `num_bits` (TFMOT always uses 8); `per_axis` works for weights of every rank; and the initial range of a weight is
that of its values instead of (-6, 6), so that a model is correct before its first training step.
"""

from __future__ import annotations

from typing import Any

import keras
import tensorflow as tf

import qdq_workbench as qdq
from qdq_workbench import Quantizer

__all__ = ["AllValuesQuantizer", "FixedQuantizer", "LastValueQuantizer", "MovingAverageQuantizer", "Quantizer"]

_DECAY = 0.999


class _TFMOTQuantizer(Quantizer):
    """Base class of TFMOT's quantizers whose range training updates.

    Args:
        num_bits: Width of the integers.
        per_axis: One range per slice along the last axis.
        symmetric: Zero point in the middle of the grid.
        narrow_range: Exclude the lowest integer.
    """

    start = (-6.0, 6.0)

    def __init__(
        self, num_bits: int = 8, per_axis: bool = False, symmetric: bool = False, narrow_range: bool = False
    ) -> None:
        super().__init__(num_bits, per_axis, symmetric, narrow_range)

    def initial_range(self) -> tuple[float, float]:
        """Return the range before the first batch."""
        return self.start

    def grid_range(self, low: Any, high: Any) -> tuple[Any, Any]:
        """Return the range of the grid: (-high, high) for a symmetric one."""
        return (-high, high) if self.spec.symmetric else (low, high)

    def write_range(self, weights: Any, low: Any, high: Any) -> None:
        """Set the range, after the same transformation as the range of a batch.

        Args:
            weights: The variables created by `build`.
            low: Lowest value.
            high: Highest value.
        """
        ends = self._batch_range(tf.constant(low), tf.constant(high))
        super().write_range(weights, ends[0].numpy(), ends[1].numpy())

    def get_config(self) -> dict[str, Any]:
        """Return the constructor's arguments."""
        config = super().get_config()
        return {key: config[key] for key in ("num_bits", "per_axis", "symmetric", "narrow_range")}

    def merge(self, low: Any, high: Any, batch_low: Any, batch_high: Any) -> tuple[Any, Any]:
        """Return the new range from the current one and that of a batch.

        Args:
            low: Lowest value so far.
            high: Highest value so far.
            batch_low: Lowest value of the batch.
            batch_high: Highest value of the batch.
        """
        return self._follow(low, high, *self._batch_range(batch_low, batch_high))

    def _follow(self, low: Any, high: Any, batch_low: Any, batch_high: Any) -> tuple[Any, Any]:
        raise NotImplementedError

    def _batch_range(self, low: Any, high: Any) -> tuple[Any, Any]:
        if not self.spec.symmetric:
            return tf.minimum(low, 0.0), tf.maximum(high, 0.0)
        levels = 2**self.spec.num_bits
        ratio = -1.0 if self.spec.narrow_range else -(levels - 2.0) / levels
        return tf.minimum(low, high / ratio), tf.maximum(high, low * ratio)


@keras.saving.register_keras_serializable(package="qdq_workbench.tfmot")
class LastValueQuantizer(_TFMOTQuantizer):
    """Quantizer with the range of the last batch; TFMOT's quantizer of weights.

    Takes TFMOT's arguments: `num_bits`, `per_axis`, `symmetric`, `narrow_range`.

    Example:
        >>> LastValueQuantizer(num_bits=4, symmetric=True).get_config()["num_bits"]
        4
    """

    def _follow(self, low: Any, high: Any, batch_low: Any, batch_high: Any) -> tuple[Any, Any]:  # noqa: ARG002
        return batch_low, batch_high


@keras.saving.register_keras_serializable(package="qdq_workbench.tfmot")
class MovingAverageQuantizer(_TFMOTQuantizer):
    """Quantizer with a moving average of the ranges of the batches, initially (-6, 6); TFMOT's for activations.

    The decay is 0.999, so the initial range has an effect for some thousand steps; `qdq_workbench.calibrate` replaces
    it at once. Takes TFMOT's arguments: `num_bits`, `per_axis`, `symmetric`, `narrow_range`.
    """

    def _follow(self, low: Any, high: Any, batch_low: Any, batch_high: Any) -> tuple[Any, Any]:
        return low - (low - batch_low) * (1.0 - _DECAY), high - (high - batch_high) * (1.0 - _DECAY)


@keras.saving.register_keras_serializable(package="qdq_workbench.tfmot")
class AllValuesQuantizer(_TFMOTQuantizer):
    """Quantizer with the range of all values seen, extended to contain 0; TFMOT's quantizer of inputs.

    Takes TFMOT's arguments: `num_bits`, `per_axis`, `symmetric`, `narrow_range`.
    """

    start = (0.0, 0.0)

    def _follow(self, low: Any, high: Any, batch_low: Any, batch_high: Any) -> tuple[Any, Any]:
        return tf.minimum(low, batch_low), tf.maximum(high, batch_high)


@keras.saving.register_keras_serializable(package="qdq_workbench.tfmot")
class FixedQuantizer(qdq.FixedQuantizer):
    """Quantizer with a range that training never changes, with TFMOT's arguments in TFMOT's order.

    Args:
        num_bits: Width of the integers.
        init_min: Lowest value of the range.
        init_max: Highest value of the range.
        narrow_range: Exclude the lowest integer.
    """

    def __init__(
        self, num_bits: int = 8, init_min: float = -6.0, init_max: float = 6.0, narrow_range: bool = False
    ) -> None:
        super().__init__(init_min, init_max, num_bits, symmetric=False, narrow_range=narrow_range)

    def get_config(self) -> dict[str, Any]:
        """Return the constructor's arguments."""
        config = super().get_config()
        return {key: config[key] for key in ("num_bits", "init_min", "init_max", "narrow_range")}
