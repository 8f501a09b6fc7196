"""A range that contains every value seen."""

from __future__ import annotations

from typing import Any

import keras
import tensorflow as tf

from qdq_workbench.quantizers.quantizer import Quantizer


@keras.saving.register_keras_serializable(package="qdq_workbench")
class AllValuesQuantizer(Quantizer):
    """Quantizer with the range of all values seen in training; intended for inputs with a known scale.

    Args:
        num_bits: Width of the integers, 2 to 16.
        per_axis: One range per slice along `axis` rather than one per tensor.
        symmetric: Zero point in the middle of the grid.
        narrow_range: Exclude the lowest integer.
        signed: Signed integers rather than unsigned ones.
        axis: The axis of `per_axis`.
        block_size: Number of values along `axis` that share a range, at least 2; positions on other axes do not share
            one. Needs `per_axis`. None for no blocks.

    Raises:
        QuantizerError: If the settings give no valid grid.

    Example:
        >>> AllValuesQuantizer(signed=False, symmetric=False).spec.qmax
        255
    """

    method_name = "all_values"

    def merge(self, low: Any, high: Any, batch_low: Any, batch_high: Any) -> tuple[Any, Any]:
        """Return the smallest range that contains the current one and the batch.

        Args:
            low: Lowest value so far.
            high: Highest value so far.
            batch_low: Lowest value of the batch.
            batch_high: Highest value of the batch.
        """
        return tf.minimum(low, batch_low), tf.maximum(high, batch_high)
