"""What a `ModelStore` knows, as values that are put aside and taken back."""

from __future__ import annotations

import collections
import dataclasses
import pathlib
from typing import Any

from qdq_widgets.curves import Scores
from qdq_widgets.state import PlanKey


@dataclasses.dataclass(frozen=True)
class BenchModel:
    """A quantized model and how far it is.

    Args:
        model: The quantized Keras model.
        stage: "calibrated", "corrected" or "fine-tuned".
        corrections: What its weights were corrected by, in that order.
    """

    model: Any
    stage: str
    corrections: tuple[Any, ...] = ()


@dataclasses.dataclass
class StoreContents:
    """Everything that a `ModelStore` knows, to be put aside and taken back: references, no copies of weights.

    Args:
        kept: The models by plan.
        scores: The scores by plan and stage.
        sizes: Bytes of the exported files by plan.
        files: The files that were exported of the present weights, by plan.
        latencies: The times of the plans' files, which do not depend on their weights.
        calibration: The last calibration.
        read: How many batches it read at most, and of how many samples; None where that is not known.
    """

    kept: collections.OrderedDict[PlanKey, BenchModel] = dataclasses.field(default_factory=collections.OrderedDict)
    scores: dict[tuple[PlanKey, str], Scores] = dataclasses.field(default_factory=dict)
    sizes: dict[PlanKey, int] = dataclasses.field(default_factory=dict)
    files: dict[PlanKey, pathlib.Path] = dataclasses.field(default_factory=dict)
    latencies: dict[PlanKey, Any] = dataclasses.field(default_factory=dict)
    calibration: Any = None
    read: tuple[int | None, int] | None = None

    def copy(self) -> StoreContents:
        """Return contents that change apart from these."""
        return dataclasses.replace(
            self,
            kept=self.kept.copy(),
            scores=self.scores.copy(),
            sizes=self.sizes.copy(),
            files=self.files.copy(),
            latencies=self.latencies.copy(),
        )
