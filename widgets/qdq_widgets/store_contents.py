"""The contents of a `ModelStore` as one value, which can be copied and swapped."""

from __future__ import annotations

import collections
import dataclasses
import pathlib
from typing import Any

from qdq_widgets.curves import Scores
from qdq_widgets.state import PlanKey


@dataclasses.dataclass(frozen=True)
class BenchModel:
    """A quantized model and its stage.

    Args:
        model: The quantized Keras model.
        stage: "calibrated", "corrected" or "fine-tuned".
        corrections: The corrections of its weights, in the order in which they were applied.
        fits: The calls of `fit` that trained its weights, in their order.
    """

    model: Any
    stage: str
    corrections: tuple[Any, ...] = ()
    fits: tuple[Any, ...] = ()


@dataclasses.dataclass
class StoreContents:
    """Everything that a `ModelStore` holds: references to models, no copies of weights.

    Args:
        kept: The models by plan.
        scores: The scores by plan and stage.
        sizes: Bytes of the exported files by plan.
        files: The files that were exported with the present weights, by plan.
        latencies: The times of the plans' files, which do not depend on their weights.
        dropped: The stage of corrected and trained models that were dropped for newer ones, by plan.
        calibration: The last calibration.
        read: Its maximum number of batches (None for all) and its batch size; None if not known.
    """

    kept: collections.OrderedDict[PlanKey, BenchModel] = dataclasses.field(default_factory=collections.OrderedDict)
    scores: dict[tuple[PlanKey, str], Scores] = dataclasses.field(default_factory=dict)
    sizes: dict[PlanKey, int] = dataclasses.field(default_factory=dict)
    files: dict[PlanKey, pathlib.Path] = dataclasses.field(default_factory=dict)
    latencies: dict[PlanKey, Any] = dataclasses.field(default_factory=dict)
    dropped: dict[PlanKey, str] = dataclasses.field(default_factory=dict)
    calibration: Any = None
    read: tuple[int | None, int] | None = None

    def copy(self) -> StoreContents:
        """Return a copy whose dictionaries are independent of these."""
        return dataclasses.replace(
            self,
            kept=self.kept.copy(),
            scores=self.scores.copy(),
            sizes=self.sizes.copy(),
            files=self.files.copy(),
            latencies=self.latencies.copy(),
            dropped=self.dropped.copy(),
        )
