"""Measuring many layers in this process, or in joblib's workers, each of which keeps a switched model."""

from __future__ import annotations

import dataclasses
import numbers
from collections.abc import Generator, Sequence
from types import MappingProxyType
from typing import Any

import joblib
import numpy as np

from qdq_workbench.analysis.metrics import Array, Metric
from qdq_workbench.analysis.pool import Job, in_workers, job_of
from qdq_workbench.analysis.samples import Samples
from qdq_workbench.analysis.sweep import Sweep
from qdq_workbench.analysis.switches import Grids, Switch
from qdq_workbench.conversion.engine.quantized_model import QuantizedModel
from qdq_workbench.errors import DataError

Choice = frozenset[Switch]


@dataclasses.dataclass(frozen=True)
class Task:
    """The fixed part of a sweep.

    Args:
        metric: The metric.
        base: The switches that are on in the base, whose intermediate tensors are kept.
    """

    metric: Metric
    base: Choice


class Measurer:
    """Measures a model with any choice of its switches on.

    Args:
        q_model: A calibrated model made by `quantize_model`; it is only read.
        samples: The data.
        task: The metric and the base of the sweep.
    """

    def __init__(self, q_model: QuantizedModel, samples: Samples, task: Task) -> None:
        self.sweep = Sweep(q_model, samples)
        self._metric = task.metric
        self._labels = samples.labels
        # With all switches off, the copy is the float model.
        self._reference: list[Array] = self.sweep.keep(frozenset())
        if not all(np.isfinite(array).all() for array in self._reference):
            raise DataError(
                "The float model's outputs on these data are not finite, so nothing can be compared with them. Check "
                f"the data and the model. Received: NaN or infinity in the outputs of {q_model.name!r}"
            )
        # Most runs differ from the base in one layer: they start from its tensors, not from the float model's.
        if task.base:
            self.sweep.keep(task.base)

    def measure(self, on: Choice, grids: Grids = MappingProxyType({})) -> float:
        """Return the metric with these switches on; `grids` replace those of some layers' weights."""
        outputs = self.sweep.outputs(on, grids) if on else self._reference
        return self._metric.measure(self._reference, outputs, self._labels)


def check_workers(n_jobs: Any) -> None:
    """Raise `DataError` if `n_jobs` is neither None nor an integer other than 0.

    Raises:
        DataError: If it is something else.
    """
    if n_jobs is not None and (isinstance(n_jobs, bool) or not isinstance(n_jobs, numbers.Integral) or n_jobs == 0):
        raise DataError(f"n_jobs must be an integer, such as 2, or -1 for all processors. Received: n_jobs={n_jobs!r}")


def measured(
    first: Measurer,
    q_model: QuantizedModel,
    samples: Samples,
    task: Task,
    choices: Sequence[Choice],
    n_jobs: int | None,
) -> Generator[tuple[int, float], None, None]:
    """Yield the position and the metric of every choice of switches, in the order in which they are ready.

    Args:
        first: The measurer of this process, which is used without workers.
        q_model: The model, for the workers.
        samples: The data, for the workers.
        task: The metric and the base of the sweep.
        choices: The switches of each run.
        n_jobs: Number of workers; None for `joblib.parallel_config`'s number, else 1.
    """
    # For a single choice, loading the model in a worker takes longer than measuring.
    if len(choices) < 2 or joblib.Parallel(n_jobs=n_jobs).n_jobs in (None, 1):
        yield from ((position, first.measure(choice)) for position, choice in enumerate(choices))
        return
    yield from in_workers(job_of(q_model, samples, task, _measurer), Measurer.measure, choices, n_jobs)


def _measurer(q_model: QuantizedModel, job: Job[Measurer]) -> Measurer:
    return Measurer(q_model, job.samples, job.settings)
