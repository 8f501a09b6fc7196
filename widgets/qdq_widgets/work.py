"""What the long steps of a bench share: the models, the data, how to train, and the right to do long work."""

from __future__ import annotations

import dataclasses
from typing import Any

from qdq_widgets.background import Job, Jobs
from qdq_widgets.data import BenchData, few_pairs
from qdq_widgets.fitting import TrainingSetup
from qdq_widgets.models import ModelStore


@dataclasses.dataclass
class Workshop:
    """What the parts of a bench need for long steps.

    Args:
        models: The quantized models.
        data: The data.
        setup: How models are compiled.
        jobs: What runs now; one at a time.
    """

    models: ModelStore
    data: BenchData
    setup: TrainingSetup
    jobs: Jobs

    def can_score(self) -> bool:
        """Whether there are validation data and a loss to score models with."""
        return self.data.validation is not None and self.setup.knows_loss

    def swept(self, plan: Any, job: Job, samples: int) -> tuple[Any, dict[str, Any]]:
        """Return what a sweep takes of a plan: its calibrated model, or the float one and how to make it; and reports.

        Args:
            plan: The plan.
            job: The job in which this happens.
            samples: How many samples of arrays to read at most.

        Raises:
            BenchError: If the ranges are not known yet, and there are no data to find them.
        """
        job.report(0.0, "building the quantized model")
        arguments: dict[str, Any] = {
            "stop": lambda: job.stop_requested,
            "progress": lambda done, total, text: job.report(done / total if total else None, str(text)),
        }
        if self.models.stage(plan) != "planned":
            return self.models.present(plan), arguments
        self.models.note_weights()
        few = few_pairs(self.data.for_calibration()[0], samples)
        return self.models.float_model, {**arguments, "plan": plan, "calibration_data": few}
