"""A quantizer with the range of the last batch."""

from __future__ import annotations

from typing import Any

import keras

from qdq_workbench.quantizers.quantizer import Quantizer


@keras.saving.register_keras_serializable(package="qdq_workbench")
class LastValueQuantizer(Quantizer):
    """Quantizer with the range of the last tensor seen in training; intended for weights.

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
        >>> LastValueQuantizer(num_bits=4, per_axis=True, narrow_range=True).spec.qmin
        -7
    """

    method_name = "last_value"

    def merge(self, low: Any, high: Any, batch_low: Any, batch_high: Any) -> tuple[Any, Any]:  # noqa: ARG002 (the interface)
        """Return the range of the batch.

        Args:
            low: Not used.
            high: Not used.
            batch_low: Lowest value of the batch.
            batch_high: Highest value of the batch.
        """
        return batch_low, batch_high
