"""TFMOT's quantizers with TFMOT's ranges.

With R = -1 on a narrow grid of n bits and R = -(2^n - 2) / 2^n on a wide one, a batch has the range

    asymmetric   min(lowest, 0), max(highest, 0)
    symmetric    min(lowest, highest / R), max(highest, lowest * R)

which is assigned (`LastValueQuantizer`), averaged with decay 0.999 (`MovingAverageQuantizer`) or merged
(`AllValuesQuantizer`). The first two start at (-6, 6), the last one at (0, 0). A symmetric grid has the scale
max / (2^(n-1) - 1).

Three things differ on purpose. Ties are rounded to even, as ONNX QuantizeLinear does; TFMOT rounds them up.
`FixedQuantizer` honours `num_bits` (TFMOT always uses 8), and `per_axis` works for weights of every rank. A weight
starts with its own range instead of (-6, 6), so that a model is right before its first training step.
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
    """What TFMOT's quantizers with a range have in common.

    Args:
        num_bits: Width of the integers.
        per_axis: One range per slice along the last axis.
        symmetric: Zero point in the middle of the grid.
        narrow_range: Leave out the lowest level.
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
        """Return the range that the grid is made from: on a symmetric one, the upper end on both sides."""
        return (-high, high) if self.spec.symmetric else (low, high)

    def write_range(self, weights: Any, low: Any, high: Any) -> None:
        """Set the range, in the form that training gives it.

        Args:
            weights: What `build` returned.
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
        """Return the range that follows from the present one and that of a batch.

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
    """The range of the last batch; TFMOT's quantizer of weights.

    Takes TFMOT's arguments: `num_bits`, `per_axis`, `symmetric`, `narrow_range`.

    Example:
        >>> LastValueQuantizer(num_bits=4, symmetric=True).get_config()["num_bits"]
        4
    """

    def _follow(self, low: Any, high: Any, batch_low: Any, batch_high: Any) -> tuple[Any, Any]:  # noqa: ARG002
        return batch_low, batch_high


@keras.saving.register_keras_serializable(package="qdq_workbench.tfmot")
class MovingAverageQuantizer(_TFMOTQuantizer):
    """A moving average of the batches' ranges with decay 0.999, from (-6, 6); TFMOT's quantizer of activations.

    It takes some thousand steps to forget where it began; `qdq_workbench.calibrate` sets it at once.
    Takes TFMOT's arguments: `num_bits`, `per_axis`, `symmetric`, `narrow_range`.
    """

    def _follow(self, low: Any, high: Any, batch_low: Any, batch_high: Any) -> tuple[Any, Any]:
        return low - (low - batch_low) * (1.0 - _DECAY), high - (high - batch_high) * (1.0 - _DECAY)


@keras.saving.register_keras_serializable(package="qdq_workbench.tfmot")
class AllValuesQuantizer(_TFMOTQuantizer):
    """The range of all values seen, and zero; TFMOT's quantizer of inputs.

    Takes TFMOT's arguments: `num_bits`, `per_axis`, `symmetric`, `narrow_range`.
    """

    start = (0.0, 0.0)

    def _follow(self, low: Any, high: Any, batch_low: Any, batch_high: Any) -> tuple[Any, Any]:
        return tf.minimum(low, batch_low), tf.maximum(high, batch_high)


@keras.saving.register_keras_serializable(package="qdq_workbench.tfmot")
class FixedQuantizer(qdq.FixedQuantizer):
    """A range that training never changes, with TFMOT's arguments in TFMOT's order.

    Args:
        num_bits: Width of the integers.
        init_min: Lowest value of the range.
        init_max: Highest value of the range.
        narrow_range: Leave out the lowest level.
    """

    def __init__(
        self, num_bits: int = 8, init_min: float = -6.0, init_max: float = 6.0, narrow_range: bool = False
    ) -> None:
        super().__init__(init_min, init_max, num_bits, symmetric=False, narrow_range=narrow_range)

    def get_config(self) -> dict[str, Any]:
        """Return the constructor's arguments."""
        config = super().get_config()
        return {key: config[key] for key in ("num_bits", "init_min", "init_max", "narrow_range")}
