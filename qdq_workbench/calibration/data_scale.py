"""Warnings if the magnitude of data does not fit a model's calibrated input ranges.

Images from 0 to 255 given to a model calibrated on 0 to 1 saturate everywhere, without any error.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from qdq_workbench._warned_line import warn_caller
from qdq_workbench.conversion.engine.quantized_model import QuantizedModel
from qdq_workbench.errors import DataScaleWarning

Range = tuple[float, float]
_FAR = 20.0  # the factor between the magnitudes of data and range from which a remark is made
_CALIBRATED = "the model was calibrated on"


def input_ranges(model: Any) -> dict[str, Range]:
    """Return the calibrated ranges of a model's inputs by name, in input order; empty for an uncalibrated model.

    The range is (0, 0) for an input of integers, such as tokens, and for one without a range.
    """
    if not isinstance(model, QuantizedModel) or not model.has_plan or not model.recorded_ranges:
        return {}
    graph, ranges = model.plan.graph, model.recorded_ranges
    return {name: ranges.get(name, (0.0, 0.0)) if graph.tensors[name].is_float else (0.0, 0.0) for name in graph.inputs}


def scale_remarks(
    known: Mapping[str, Range],
    batches: Iterable[Sequence[Any]],
    *,
    source: str = "",
    covered: str = _CALIBRATED,
    replaces: bool = False,
) -> tuple[str, ...]:
    """Return a remark for every input whose data are many times larger or smaller than its range.

    `known` has the ranges in input order; `source` is the origin of the data with a leading space, such as " in
    'x.npy'", and `covered` the words before the ranges; with `replaces` the data replace the model's ranges.
    """
    found: dict[str, _Seen] = {}
    for batch in batches if known else ():
        for (name, ends), array in zip(known.items(), map(np.asarray, batch), strict=True):
            if array.size and array.dtype.kind in "biuf":
                found.setdefault(name, _Seen(max(map(abs, ends)))).add(array)
    words = {name: f"the data of input {name!r}{source} go from" for name in found}
    remarks = (_remark(words[name], known[name], seen, covered, replaces=replaces) for name, seen in found.items())
    return tuple(remark for remark in remarks if remark)


class _Seen:
    """Statistics of the data of one input.

    Args:
        end: The largest absolute value of its calibrated range.
    """

    def __init__(self, end: float) -> None:
        self.end, self.low, self.high, self.dtype = end, np.inf, -np.inf, ""
        self._beyond = self._all = 0

    def add(self, array: Any) -> None:
        """Add a batch."""
        self.low, self.high = min(self.low, float(array.min())), max(self.high, float(array.max()))
        self.dtype = str(array.dtype)
        self._beyond += int(np.count_nonzero((array > self.end) | (array < -self.end)))
        self._all += int(np.count_nonzero(array))  # much of an image may be black

    @property
    def largest(self) -> float:
        """The largest absolute value."""
        return max(abs(self.low), abs(self.high))

    @property
    def mostly_beyond(self) -> bool:
        """Whether more than 90% of the nonzero values are outside [-end, end], so that it is not a few outliers."""
        return 10 * self._beyond > 9 * self._all


def warn_of_scale(known: Mapping[str, Range], batches: Iterable[Sequence[Any]], **how: Any) -> None:
    """Warn with each remark of `scale_remarks`, which takes the same arguments."""
    for remark in scale_remarks(known, batches, **how):
        warn_caller(DataScaleWarning(remark[0].upper() + remark[1:]))


def _remark(words: str, known: Range, seen: _Seen, covered: str, *, replaces: bool) -> str:
    if not (seen.end > 0 and seen.largest > 0) or 1 / _FAR < seen.largest / seen.end < _FAR:
        return ""
    both = f"{words} {seen.low:g} to {seen.high:g} ({seen.dtype}), but {covered} {known[0]:g} to {known[1]:g}"
    # The data may be the ends of new ranges alone (see `calibrate`), so `mostly_beyond` is not asked here.
    if replaces:
        return (
            f"{both} before. These data give it new ranges, which is right only if it was trained on such data and "
            "will be given such data."
        )
    if seen.largest > seen.end and not seen.mostly_beyond:
        return ""
    effect = "nearly all of them saturate" if seen.largest > seen.end else "nearly all of them fall on a few steps"
    return f"{both}, so {effect}. Scale them as the calibration data were."
