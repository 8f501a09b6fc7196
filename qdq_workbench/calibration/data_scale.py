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
    found: dict[str, tuple[float, float, str]] = {}
    for batch in batches if known else ():
        for name, array in zip(known, map(np.asarray, batch), strict=True):
            if array.size and array.dtype.kind in "biuf":
                low, high, _ = found.get(name, (0.0, 0.0, ""))
                found[name] = (min(low, float(array.min())), max(high, float(array.max())), str(array.dtype))
    words = {name: f"the data of input {name!r}{source} go from" for name in found}
    remarks = (_remark(words[name], known[name], given, covered, replaces=replaces) for name, given in found.items())
    return tuple(remark for remark in remarks if remark)


def warn_of_scale(known: Mapping[str, Range], batches: Iterable[Sequence[Any]], **how: Any) -> None:
    """Warn of every input whose data are many times larger, or smaller, than its range; as `scale_remarks`."""
    for remark in scale_remarks(known, batches, **how):
        warnings.warn(remark[0].upper() + remark[1:], DataScaleWarning, stacklevel=_outside())


def _remark(words: str, known: Range, given: tuple[float, float, str], covered: str, *, replaces: bool) -> str:
    low, high, dtype = given
    ends, largest = max(map(abs, known)), max(abs(low), abs(high))
    if not (ends > 0 and largest > 0) or 1 / _FAR < largest / ends < _FAR:
        return ""
    effect = "nearly all of them saturate" if largest > ends else "nearly all of them fall on a few steps"
    both = f"{words} {low:g} to {high:g} ({dtype}), but {covered} {known[0]:g} to {known[1]:g}"
    if replaces:
        return (
            f"{both} before. These data give it new ranges, which is right only if it was trained on such data and "
            "will be given such data."
        )
    return f"{both}, so {effect}. Scale them as the calibration data were."


def _outside() -> int:
    """Return the stack level of the code that called the library, as seen by the caller of this function."""
    frame, level = inspect.currentframe(), 0  # this function's own: what is counted are the frames above it
    while frame is not None and frame.f_code.co_filename.startswith(_LIBRARY):
        frame, level = frame.f_back, level + 1
    return level
