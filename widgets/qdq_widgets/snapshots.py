"""What was known of a plan at one time: its model, ranges, scores and file, to come back to."""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Mapping
from typing import Any

import qdq_workbench as qdq
from qdq_widgets.curves import Scores

CALIBRATED, CORRECTED, FINE_TUNED = "calibrated", "corrected", "fine-tuned"


@dataclasses.dataclass(frozen=True)
class Snapshot:
    """The work on one plan as it was when somebody kept it.

    Weights are held by reference: the bench never trains a model that it keeps, each run makes a new one.

    Args:
        stage: "planned", "calibrated", "corrected" or "fine-tuned".
        model: The quantized Keras model; None where it is built again from the calibration when it is needed.
        calibration: The `CalibrationResult` that its ranges are of; None before the first.
        scores: What was scored, by stage.
        size: Bytes of the file that was exported; None if there was none.
        file: The file that was exported of these weights; None if there was none.
        latency: The `LatencyReport` of its plan, which does not depend on the weights; None if it was not measured.
        corrections: What its weights were corrected by, as `corrections.Applied`, in that order.
    """

    stage: str = "planned"
    model: Any = dataclasses.field(default=None, repr=False)
    calibration: Any = dataclasses.field(default=None, repr=False)
    scores: Mapping[str, Scores] = dataclasses.field(default_factory=dict)
    size: int | None = None
    file: pathlib.Path | None = None
    latency: qdq.LatencyReport | None = None
    corrections: tuple[Any, ...] = ()

    @property
    def has_weights(self) -> bool:
        """Whether it has weights of its own: no others are made of the calibration."""
        return self.stage in (CORRECTED, FINE_TUNED)

    @property
    def score(self) -> Scores | None:
        """What the model scored; None if it was not scored."""
        return self.scores.get(self.stage)

    def is_of(self, other: Snapshot) -> bool:
        """Return whether another snapshot has the same ranges and weights.

        Args:
            other: A snapshot of the same plan.
        """
        if self.stage != other.stage:
            return False
        if self.has_weights:
            return self.model is other.model
        return self.calibration is other.calibration

    def replace(self, **changes: Any) -> Snapshot:
        """Return a snapshot with some fields changed.

        Args:
            **changes: Fields with their new values.
        """
        return dataclasses.replace(self, **changes)

    def with_score(self, scores: Scores) -> Snapshot:
        """Return a snapshot that knows the score of its stage.

        Args:
            scores: The score.
        """
        return self.replace(scores={**self.scores, self.stage: scores})
