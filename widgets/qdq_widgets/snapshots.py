"""Snapshots of the work on a plan: its model, ranges, scores and file, to be restored later."""

from __future__ import annotations

import dataclasses
import pathlib
import weakref
from collections.abc import Mapping
from typing import Any

import qdq_workbench as qdq
from qdq_widgets.curves import Scores
from qdq_widgets.state import PlanKey

CALIBRATED, CORRECTED, FINE_TUNED = "calibrated", "corrected", "fine-tuned"


@dataclasses.dataclass(frozen=True)
class Snapshot:
    """The work on one plan at one time.

    Weights are held by reference: the bench never trains a model that it keeps, each run makes a new one.

    Args:
        stage: "planned", "calibrated", "corrected" or "fine-tuned".
        model: The quantized Keras model; None if it is built again from the calibration when needed.
        calibration: The `CalibrationResult` with its ranges; None before the first.
        scores: The scores by stage.
        size: Bytes of the file that was exported; None if there was none.
        file: The file that was exported with these weights; None if there was none.
        latency: The `LatencyReport` of its plan, which does not depend on the weights; None if it was not measured.
        corrections: The corrections of its weights, as `corrections.Applied`, in the order in which they were applied.
        fits: The calls of `fit` that trained its weights, as `fits.Fit`, in their order.
    """

    stage: str = "planned"
    model: Any = dataclasses.field(default=None, repr=False)
    calibration: Any = dataclasses.field(default=None, repr=False)
    scores: Mapping[str, Scores] = dataclasses.field(default_factory=dict)
    size: int | None = None
    file: pathlib.Path | None = None
    latency: qdq.LatencyReport | None = None
    corrections: tuple[Any, ...] = ()
    fits: tuple[Any, ...] = ()

    @property
    def has_weights(self) -> bool:
        """Whether it has weights of its own, which cannot be rebuilt from the calibration."""
        return self.stage in (CORRECTED, FINE_TUNED)

    @property
    def score(self) -> Scores | None:
        """The scores at its stage; None if it was not scored."""
        return self.scores.get(self.stage)

    def is_of(self, other: Snapshot) -> bool:
        """Return whether another snapshot of the same plan has the same ranges and weights."""
        if self.stage != other.stage:
            return False
        if self.has_weights:
            return self.model is other.model
        return self.calibration is other.calibration

    def replace(self, **changes: Any) -> Snapshot:
        """Return a snapshot with some fields changed."""
        return dataclasses.replace(self, **changes)

    def with_score(self, scores: Scores) -> Snapshot:
        """Return a snapshot with the scores of its stage."""
        return self.replace(scores={**self.scores, self.stage: scores})


class WorkMark:
    """Marks the ranges and weights that a plan had at one time, without keeping the model alive.

    Args:
        key: The key of the plan.
        work: The work on it.
    """

    def __init__(self, key: PlanKey, work: Snapshot) -> None:
        self._key, self._stage = key, work.stage
        self._model = weakref.ref(work.model) if work.has_weights else None
        self._calibration = None if work.has_weights else work.calibration

    def is_of(self, key: PlanKey, work: Snapshot) -> bool:
        """Return whether a plan has these ranges and weights."""
        if (self._key, self._stage) != (key, work.stage):
            return False
        if self._model is not None:
            return self._model() is work.model
        return self._calibration is work.calibration
