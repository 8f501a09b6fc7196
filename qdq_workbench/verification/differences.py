"""The records of a comparison of two programs, and the comparison of the integers of one tensor."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Any

import numpy as np

from qdq_workbench.errors import VerificationError
from qdq_workbench.quantizers import numerics
from qdq_workbench.verification.keras_layout import Pads, fitting_layouts
from qdq_workbench.verification.saturation import worst_saturation

_OF_SATURATION = ("mean_difference", "allowed", "agreement")


@dataclasses.dataclass(frozen=True)
class TensorParity:
    """The difference between the file's and Keras's integers of one quantized tensor, both fed the file's values.

    Args:
        tensor: Name of the pair.
        elements: The number of values compared.
        off_by_one: The number of values that differ by one step, or by more because of an int32 bias.
        worst: The largest difference that no bias explains, in steps.
        by_bias: The largest difference that the rounding of an int32 bias explains, in steps; 0 if none exceeds one.
        explained: What makes values of Keras those of the file, in the layout of Keras, where the error of a float
            operator or the rounding of an int32 bias explains that their integers differ: by one step so close to the
            boundary between two that it may have moved them over it, and by as many as it is large. 0 elsewhere; None
            if there are none.
    """

    tensor: str
    elements: int
    off_by_one: int
    worst: int
    by_bias: int = 0
    explained: np.ndarray | None = dataclasses.field(default=None, repr=False, compare=False)


@dataclasses.dataclass(frozen=True)
class OutputParity:
    """The difference between one output of the file and of the Keras model.

    Args:
        output: Name of the output.
        optimized: Whether ONNX Runtime's graph optimizations (its integer kernels) were on.
        mean_difference: Mean absolute difference.
        max_difference: Largest absolute difference.
        allowed: The mean difference that the network's own sensitivity allows.
        agreement: Share of positions with the same argmax over the last axis; None for an output with fewer than 2
            axes or classes.
        rewrite: The rewrite by ONNX Runtime that explains a larger difference, as text; empty if none is needed.
        saturated: The failed comparison without exact sums, if the output passed only with exact sums.
    """

    output: str
    optimized: bool
    mean_difference: float
    max_difference: float
    allowed: float
    agreement: float | None
    rewrite: str = ""
    saturated: OutputParity | None = None

    @property
    def passed(self) -> bool:
        """Whether the mean difference is within the tolerance; False for NaN."""
        return self.mean_difference <= self.allowed


def saturation_of(outputs: Iterable[OutputParity]) -> dict[str, Any] | None:
    """Return the output with the largest error by saturation, for `processor_remark`; None if none saturates."""
    return worst_saturation(
        {"name": f"output {each.output!r}", **{key: getattr(each, key) for key in _OF_SATURATION}}
        for each in (output.saturated for output in outputs)
        if each is not None
    )


def compare_codes(
    name: str,
    source: np.ndarray,
    codes: np.ndarray,
    qparams: numerics.QParams,
    pads: Pads | None,
    *,
    noise: float = 0.0,
    bias: float = 0.0,
) -> TensorParity:
    """Compare the integers of a Keras tensor with the file's, in whichever layout of the file fits best.

    A difference of no more than `noise`, in float units, counts as 0. One that a rounded bias explains, which moves
    values by up to `bias`, counts as one step. Both are explained, and so is one step of values within `noise + bias`
    of the boundary between two integers.
    """
    ours = numerics.quantize(source.astype(np.float32), qparams).astype(np.int64)
    candidates = fitting_layouts(codes.astype(np.int64), ours.shape, pads, int(qparams.zero_point))
    require_fitting(candidates, name, codes, ours)
    theirs = min(candidates, key=lambda candidate: np.abs(ours - candidate).sum())
    difference = np.abs(ours - theirs)
    scale = float(qparams.scale)
    of_floats = (difference > 0) & (difference * scale <= noise)
    difference = np.where(of_floats, 0, difference)
    # Values that lie `bias` apart have integers that lie one step further apart at most.
    coarse = (difference > 1) & ((difference - 1) * scale <= noise + bias)
    by_bias = int(difference[coarse & ((difference - 1) * scale > noise)].max(initial=0))
    flips = difference == 1
    boundaries = ((ours[flips] + theirs[flips]) / 2 - float(qparams.zero_point)) * scale
    known = of_floats | coarse
    known[flips] = np.abs(source[flips] - boundaries) <= noise + bias
    # Not by steps: a value beyond the end of the grid would stay there. And by no more than the errors and a rounding.
    change = np.clip(numerics.dequantize(theirs, qparams) - source, -noise - bias - scale, noise + bias + scale)
    explained = np.where(known, change, 0.0) if known.any() else None
    difference = np.where(coarse, 1, difference)
    off_by_one, worst = int((difference == 1).sum()), int(difference.max(initial=0))
    return TensorParity(name, ours.size, off_by_one, worst, by_bias, explained)


def require_fitting(candidates: list[np.ndarray], tensor: str, values: np.ndarray, wanted: np.ndarray) -> None:
    """Raise unless some layout of a file's tensor has the shape of the Keras model's.

    Raises:
        VerificationError: If there are no candidates.
    """
    if not candidates:
        raise VerificationError(
            "A tensor of the file has another shape than the Keras model's; export the model again. "
            f"Received: tensor {tensor!r}, shape {values.shape}, expected {wanted.shape}"
        )


def apart(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Return the absolute differences: 0 for equal infinities or NaN in both, infinite where only one is a number."""
    mine, theirs = np.broadcast_arrays(np.asarray(one, np.float64), np.asarray(other, np.float64))
    same = (mine == theirs) | (np.isnan(mine) & np.isnan(theirs))
    numbers = np.isfinite(mine) & np.isfinite(theirs)
    found = np.where(same, 0.0, np.inf)
    return np.abs(np.subtract(mine, theirs, where=numbers, out=found), where=numbers, out=found)


def mean_of_numbers(one: np.ndarray, other: np.ndarray | float = 0.0) -> float:
    """Return the mean absolute difference, from 0 by default, where both are finite: a tolerance is never infinite."""
    found = apart(one, np.asarray(other))
    return float(found.sum(where=np.isfinite(found))) / max(1, found.size)


def top1_agreement(ours: np.ndarray, theirs: np.ndarray) -> float | None:
    """Return the share of positions with the same argmax over the last axis; None without two axes and two classes."""
    if ours.ndim < 2 or ours.shape[-1] < 2:
        return None
    return float((ours.argmax(-1) == theirs.argmax(-1)).mean())


def passed_with_exact_sums(default: list[OutputParity], exact: list[OutputParity]) -> list[OutputParity]:
    """Return the default comparisons; where only the exact one passed, that one, with the other in `saturated`."""
    return [
        dataclasses.replace(new, saturated=old) if new.passed and not old.passed else old
        for old, new in zip(default, exact, strict=True)
    ]
