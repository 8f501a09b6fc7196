"""The objects that the parts of a bench share for long tasks: models, data, training setup, and the running job."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from qdq_widgets.background import Job, Jobs
from qdq_widgets.data import BenchData, few_pairs
from qdq_widgets.fitting import TrainingSetup
from qdq_widgets.models import ModelStore


@dataclasses.dataclass
class Workshop:
    """The shared objects of a bench's parts for long tasks.

    Args:
        models: The quantized models.
        data: The data.
        setup: Compiles models.
        jobs: Runs long tasks, one at a time.
    """

    models: ModelStore
    data: BenchData
    setup: TrainingSetup
    jobs: Jobs

    def can_score(self) -> bool:
        """Return whether there are validation data and a loss to score models with."""
        return self.data.validation is not None and self.setup.knows_loss

    def swept(self, plan: Any, job: Job, samples: int) -> tuple[Any, dict[str, Any]]:
        """Return the model and the keyword arguments for a sweep over a plan.

        The model is that of the plan; before the first calibration it is the float model, and the arguments hold the
        plan and calibration data, `samples` at most of arrays. The arguments also connect progress and stop with the
        job.
        """
        arguments: dict[str, Any] = {
            "stop": lambda: job.stop_requested,
            "progress": lambda done, total, text: job.report(done / total if total else None, str(text)),
        }
        if self.models.stage(plan) != "planned":
            return built(job, lambda: self.models.present(plan)), arguments
        self.models.note_weights()
        few = few_pairs(self.data.for_calibration()[0], samples)
        return self.models.float_model, {**arguments, "plan": plan, "calibration_data": few}


def built(job: Job, build: Callable[[], Any]) -> Any:
    """Return what a function builds, as a step of a job that ends it when it is stopped: `BenchStoppedError`."""
    job.report(None, "building the quantized model")
    with job.stops():
        return build()
