"""A range that is always that of the last batch."""

from __future__ import annotations

from typing import Any

import keras

from qdq_workbench.quantizers.quantizer import Quantizer


@keras.saving.register_keras_serializable(package="qdq_workbench")
class LastValueQuantizer(Quantizer):
    """Quantizer with the range of the last tensor seen in training; made for weights.

    Takes the arguments of `Quantizer`.

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
