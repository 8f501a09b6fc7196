"""The finding of a detector: one likely cause, the sites that it explains, and its fixes."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator

from qdq_workbench.analysis.switches import Switch
from qdq_workbench.diagnosis.evidence import Evidence
from qdq_workbench.diagnosis.fixes import Fix

#: The title of each kind of cause in reports.
TITLES = {
    "data_range": "data in another range than calibrated",
    "few_samples": "too few calibration samples",
    "cut_off": "values cut off by the calibration method",
    "stale_statistics": "normalization statistics that do not fit the data",
    "softmax": "quantized softmax",
    "logits": "quantized logits",
    "unfolded_normalization": "normalization that is not folded",
    "unbalanced_inputs": "unbalanced inputs",
    "negative_tail": "short negative side",
    "outlier_channel": "outlier channel",
    "wide_range": "range wider than the data",
    "dead_channels": "dead channels that set the scale",
    "depthwise_channels": "unequal channels in one depthwise scale",
    "outlier_weights": "outlying weights",
    "coarse_grid": "grid too coarse",
}


@dataclasses.dataclass(frozen=True)
class Finding:
    """One likely cause.

    Args:
        kind: One of `TITLES`.
        layer: The layer concerned.
        tensor: The tensor concerned: an activation, or `<layer>/<weight>`.
        switches: The sites whose noise it explains.
        evidence: The observation, with figures.
        fixes: The fixes, the mildest first.
        share: Its share of the error, 0 to 1, if it is not that of its sites; else None.
        changes_function: Whether the fix changes the function of the float model, so that labels are needed to measure
            its gain.
    """

    kind: str
    layer: str
    tensor: str
    switches: frozenset[Switch]
    evidence: str
    fixes: tuple[Fix, ...]
    share: float | None = None
    changes_function: bool = False


Detector = Callable[[Evidence], Iterator[Finding]]
