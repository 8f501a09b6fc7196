"""Whether data have the scale that a model was calibrated for.

Images of 0 to 255 given to a model for 0 to 1 saturate everywhere, and nothing fails.
"""

from __future__ import annotations

import contextlib
import inspect
import pathlib
import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from qdq_workbench.conversion.engine.quantized_model import QuantizedModel
from qdq_workbench.errors import DataScaleWarning

Range = tuple[float, float]
_FAR = 20.0
_CALIBRATED = "the model was calibrated on"
_LIBRARY = (str(pathlib.Path(__file__).parents[1]), contextlib.__file__)  # decorators pass through the second one


def input_ranges(model: Any) -> dict[str, Range]:
    """Return the ranges of a model's inputs as they were calibrated, in the order of the inputs.

    Args:
        model: The model; one that is not quantized, or has no ranges yet, has none.

    Returns:
        By name of the input; (0, 0) for one whose values have no scale, such as classes, or that has no range.
    """
    if not isinstance(model, QuantizedModel) or not model.has_plan or not model.recorded_ranges:
        return {}
    graph, ranges = model.plan.graph, model.recorded_ranges
    return {
        name: ranges.get(name, (0.0, 0.0)) if "float" in graph.tensors[name].dtype else (0.0, 0.0)
        for name in graph.inputs
    }


def scale_remarks(
    known: Mapping[str, Range],
    batches: Iterable[Sequence[Any]],
    *,
    source: str = "",
    covered: str = _CALIBRATED,
    replaces: bool = False,
) -> tuple[str, ...]:
    """Tell of every input whose data are many times larger, or smaller, than its range.

    Args:
        known: The ranges by name of the input, in the order of the inputs; see `input_ranges`.
        batches: Arrays per input.
        source: What the data are from, such as " in 'x.npy'".
        covered: What the ranges are, as the words in front of them.
        replaces: Whether the data give the model new ranges.

    Returns:
        One sentence or two per input.
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
    """What was seen of an input.

    Args:
        end: The largest absolute value of its range.
    """

    def __init__(self, end: float) -> None:
        self.end, self.low, self.high, self.dtype = end, 0.0, 0.0, ""
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
        """Whether nearly all values that are not 0 are beyond the range: single outliers are another matter."""
        return 10 * self._beyond > 9 * self._all


def warn_of_scale(known: Mapping[str, Range], batches: Iterable[Sequence[Any]], **how: Any) -> None:
    """Warn of every input whose data are many times larger, or smaller, than its range; as `scale_remarks`."""
    for remark in scale_remarks(known, batches, **how):
        warnings.warn(remark[0].upper() + remark[1:], DataScaleWarning, stacklevel=_outside())


def _remark(words: str, known: Range, seen: _Seen, covered: str, *, replaces: bool) -> str:
    if not (seen.end > 0 and seen.largest > 0) or 1 / _FAR < seen.largest / seen.end < _FAR:
        return ""
    both = f"{words} {seen.low:g} to {seen.high:g} ({seen.dtype}), but {covered} {known[0]:g} to {known[1]:g}"
    if replaces:
        return (
            f"{both} before. These data give it new ranges, which is right only if it was trained on such data and "
            "will be given such data."
        )
    if seen.largest > seen.end and not seen.mostly_beyond:
        return ""
    effect = "nearly all of them saturate" if seen.largest > seen.end else "nearly all of them fall on a few steps"
    return f"{both}, so {effect}. Scale them as the calibration data were."


def _outside() -> int:
    """Return the stack level of the code that called the library, as seen by the caller of this function."""
    frame, level = inspect.currentframe(), 0  # this function's own: what is counted are the frames above it
    while frame is not None and frame.f_code.co_filename.startswith(_LIBRARY):
        frame, level = frame.f_back, level + 1
    return level
