"""Whether a model computes every sample by itself, so that a file may be run batch by batch and compared with it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

# Of an output's mean size. Sums in another order move single integers by a step; what depends on the batch moves all.
_APART = 1e-3


def are_first_rows(few: Sequence[np.ndarray], many: Sequence[np.ndarray], given: int) -> bool:
    """Return whether all outputs for the first samples alone are the first rows of those for `given` samples.

    An output may have no row per sample (a mean over the batch), or rows that depend on the others (what is left when
    that mean is subtracted). Taken for dependent without need, a file is compared on fewer samples.
    """
    return all(_is_first_row(ours, whole, given) for ours, whole in zip(few, many, strict=True))


def _is_first_row(few: np.ndarray, many: np.ndarray, given: int) -> bool:
    if many.shape[:1] != (given,) or few.shape[1:] != many.shape[1:]:
        return False
    count = min(len(few), given)
    ours, theirs = few[:count].astype(np.float64), many[:count].astype(np.float64)
    return float(np.abs(ours - theirs).sum()) <= _APART * float(np.abs(theirs).sum())
