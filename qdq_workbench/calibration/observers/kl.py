"""The range whose grid preserves the distribution of the values best.

P is the histogram with the clipped values added to the outermost bins inside the range. Q is the histogram at the
resolution of the grid: every code's count, without the clipped values, spread evenly over the occupied bins of that
code. The range with the least divergence is chosen,

    KL(P || Q) = sum_i P_i * log(P_i / Q_i)

Zero is exact on every grid, so a spike there (after a ReLU) must not affect the range: the count of the bin of zero is
limited to that of its fuller neighbour. As in Migacz, "8-bit inference with TensorRT", GTC 2017, but on the tensor's
own grid; `entropy` is ONNX Runtime's variant, which does not depend on the grid.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from qdq_workbench.calibration.observers.error_observer import ErrorObserver
from qdq_workbench.calibration.observers.observer import register_observer

Array = npt.NDArray[Any]


@register_observer("kl")
class KLObserver(ErrorObserver):
    """Range with the least Kullback-Leibler divergence on the tensor's grid; see the top of the file.

    Args:
        tensor: Name of the tensor, for error messages.
        candidates: The number of fractions of the range to try.

    Raises:
        DataError: If `candidates` is not an integer from 2 on.

    Example:
        >>> observer = KLObserver("relu1")
        >>> observer.update(np.append(np.random.default_rng(0).normal(size=100_000), 40.0))
        >>> observer.range()[1] < 20
        True
    """

    def __init__(self, tensor: str, candidates: int = 100) -> None:
        super().__init__(tensor, divergence, candidates)

    def counts(self) -> Array:
        """Return the counts of the histogram with the spike at zero reduced to its larger neighbour."""
        counts = self.histogram.counts.copy()
        place = int(np.searchsorted(self.histogram.edges, 0.0, side="right")) - 1
        beside = [counts[index] for index in (place - 1, place + 1) if 0 <= index < counts.size]
        if 0 <= place < counts.size and max(beside, default=0) > 0:
            counts[place] = min(counts[place], max(beside))
        return counts


def divergence(values: Array, counts: Array, quantized: Array, clipped: Array) -> float:  # noqa: ARG001
    """Return KL(P || Q) of a candidate range, from the middles of the occupied bins in increasing order.

    `clipped` tells whether each middle lies outside the grid.
    """
    kept = np.flatnonzero(~clipped)
    if not kept.size:
        return float("inf")
    reference = counts[kept].copy()
    reference[0] += counts[: kept[0]].sum()
    reference[-1] += counts[kept[-1] + 1 :].sum()
    _, code = np.unique(quantized[kept], return_inverse=True)
    of_code = np.bincount(code, weights=counts[kept])
    spread = (of_code / np.bincount(code))[code]
    p, q = reference / reference.sum(), spread / spread.sum()
    # All terms are finite: `RangeSearch` passes occupied bins only, so no bin inside has a Q of 0.
    return float(np.sum(p * np.log(p / q)))
