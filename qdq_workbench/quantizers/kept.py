"""A quantizer with given scales and zero points, for weights whose integers were chosen by another method."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import keras
import numpy as np

from qdq_workbench.quantizers import numerics
from qdq_workbench.quantizers.quantizer import Quantizer

_NEAR = (0, 1, -1, 2, -2, 3, -3)  # in units in the last place


@keras.saving.register_keras_serializable(package="qdq_workbench")
class KeptQuantizer(Quantizer):
    """Quantizer of a weight with a given grid, which neither training nor new values of the weight change.

    Takes the arguments of `Quantizer`. Until `write_grid` sets the grid, it is that of the weight's initial values.

    Example:
        >>> KeptQuantizer(num_bits=4, per_axis=True, axis=0, block_size=32).updates_range
        False
    """

    updates_range = False
    method_name = "kept"

    def merge(self, low: Any, high: Any, batch_low: Any, batch_high: Any) -> tuple[Any, Any]:  # noqa: ARG002 (the interface)
        """Return the range unchanged, whatever the batch."""
        return low, high

    def start_from(self, weights: Mapping[str, Any], values: np.ndarray) -> None:
        """Set the initial range, that of the weight's values, in the variables created by `build`."""
        # The base class does not set a range that training does not update.
        self.write_range(weights, *numerics.weight_range(values, self.spec))

    def write_grid(self, weights: Mapping[str, Any], scale: np.ndarray, zero_point: np.ndarray) -> None:
        """Set the range, in the variables created by `build`, to one whose grid has a given scale and zero point.

        Zero points are reproduced exactly, and scales bit for bit where some float32 range gives them: on a symmetric
        grid not every float32 is a range divided by the number of steps; the scale then differs by one unit in the last
        place.
        """
        self.write_range(weights, *self._ends(np.asarray(scale, np.float32), np.asarray(zero_point)))

    def _ends(self, scale: np.ndarray, zero_point: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the range whose grid has a scale and zero point."""
        spec = self.spec
        if spec.symmetric:
            high = scale * np.float32(2 ** (spec.num_bits - 1) - 1)
            low = -high
        else:
            low, high = (((end - zero_point).astype(np.float32) * scale) for end in (spec.qmin, spec.qmax))
        best = (low, high)
        missing = np.inf * np.ones_like(scale)
        for units in _NEAR:
            # Integers added to the bits of a positive float move it by so many units; the bits of 0 could become a NaN.
            moved = (high.view(np.int32) + np.where(high > 0, units, 0).astype(np.int32)).view(np.float32)
            found = numerics.qparams_from_range(-moved if spec.symmetric else low, moved, spec)
            off = np.where(found.zero_point == zero_point, np.abs(found.scale - scale), np.inf)
            better = off < missing
            best = (
                np.where(better, -moved if spec.symmetric else low, best[0]),
                np.where(better, moved, best[1]),
            )
            missing = np.minimum(missing, off)
        return best
