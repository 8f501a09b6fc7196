"""Measuring many layers: here, or in joblib's workers, which load the model from a file of their own accord.

A Keras model cannot be sent to another process. Each worker loads it once, keeps it ready, and measures what it is
handed; `joblib.parallel_config` chooses processes, threads, or a cluster.
"""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Generator, Sequence
from concurrent.futures import BrokenExecutor
from types import MappingProxyType
from typing import Any

import joblib
import keras
import numpy as np

from qdq_workbench._scratch import scratch_folder
from qdq_workbench.analysis.metrics import Array, Metric
from qdq_workbench.analysis.samples import Samples
from qdq_workbench.analysis.sweep import Sweep
from qdq_workbench.analysis.switches import Grids, Switch
from qdq_workbench.conversion.engine.quantized_model import QuantizedModel
from qdq_workbench.errors import DataError, UnsupportedModelError, WorkerError, first_line

Choice = frozenset[Switch]


@dataclasses.dataclass(frozen=True)
class Task:
    """A sweep's fixed part.

    Args:
        metric: What is measured.
        base: The switches of the sweep's base.
    """

    metric: Metric
    base: Choice


class Measurer:
    """Measures a model with any choice of its switches on.

    Args:
        q_model: A calibrated model made by `quantize_model`; it is only read.
        samples: The data.
        task: What is measured, and from where.
    """

    def __init__(self, q_model: QuantizedModel, samples: Samples, task: Task) -> None:
        self.sweep = Sweep(q_model, samples)
        self._metric = task.metric
        self._labels = samples.labels
        self._reference: list[Array] = self.sweep.keep(frozenset())
        if not all(np.isfinite(array).all() for array in self._reference):
            raise DataError(
                "The float model's outputs on these data are not finite, so nothing can be compared with them. Check "
                f"the data and the model. Received: NaN or infinity in the outputs of {q_model.name!r}"
            )
        if task.base:
            self.sweep.keep(task.base)

    def measure(self, on: Choice, grids: Grids = MappingProxyType({})) -> float:
        """Return the metric with these switches on.

        Args:
            on: The switches.
            grids: Other grids of some layers' weights.
        """
        outputs = self.sweep.outputs(on, grids) if on else self._reference
        return self._metric.measure(self._reference, outputs, self._labels)


def check_workers(n_jobs: Any) -> None:
    """Refuse what is no number of workers.

    Args:
        n_jobs: How many, counted from the number of processors if negative; None for joblib's own choice.

    Raises:
        DataError: If it is something else.
    """
    if n_jobs is not None and (isinstance(n_jobs, bool) or not isinstance(n_jobs, int) or n_jobs == 0):
        raise DataError(f"n_jobs must be an integer, such as 2, or -1 for all processors. Received: n_jobs={n_jobs!r}")


def measured(
    first: Measurer,
    q_model: QuantizedModel,
    samples: Samples,
    task: Task,
    choices: Sequence[Choice],
    n_jobs: int | None,
) -> Generator[tuple[int, float], None, None]:
    """Yield the position and the value of every choice, in the order in which they are ready.

    Args:
        first: A measurer for this process.
        q_model: The model, for the workers.
        samples: The data, for the workers.
        task: What is measured.
        choices: The switches of each run.
        n_jobs: How many workers; None for `joblib.parallel_config`'s number, else 1.
    """
    pool = joblib.Parallel(n_jobs=n_jobs, return_as="generator_unordered")
    if pool.n_jobs in (None, 1) or len(choices) < 2:
        yield from ((position, first.measure(choice)) for position, choice in enumerate(choices))
        return
    with scratch_folder() as folder:
        path = folder / "model.keras"
        q_model.save(path)
        job = _Job(str(path), samples, task, _users_classes())
        try:
            yield from pool(joblib.delayed(_run)(job, position, choice) for position, choice in enumerate(choices))
        except Exception as error:
            if not isinstance(error, BrokenExecutor) and type(error).__name__ != "KilledWorker":  # the latter: dask's
                raise
            raise WorkerError(
                "A worker process of the sweep ended before its work did; most often memory was short. Run it again "
                "with fewer workers, n_jobs=1 needs none; where a checkpoint was given, it goes on from there. "
                f"Received: n_jobs={pool.n_jobs}: {first_line(error)}"
            ) from error


@dataclasses.dataclass(frozen=True)
class _Job:
    path: str
    samples: Samples
    task: Task
    custom_objects: dict[str, Any]


_READY = threading.local()  # what each worker, process or thread, has loaded


def _run(job: _Job, position: int, choice: Choice) -> tuple[int, float]:
    if getattr(_READY, "path", None) != job.path:
        _READY.path, _READY.measurer = job.path, Measurer(_load(job), job.samples, job.task)
    measurer: Measurer = _READY.measurer
    return position, measurer.measure(choice)


def _load(job: _Job) -> QuantizedModel:
    import qdq_workbench  # noqa: F401 - registers our layers in a fresh process

    try:
        # The file was written by the sweep itself a moment ago, so its Lambda layers are the user's own.
        model: QuantizedModel = keras.models.load_model(
            job.path, custom_objects=job.custom_objects, compile=False, safe_mode=False
        )
    except Exception as error:
        raise UnsupportedModelError(
            "A worker process cannot load the model, so the sweep cannot run in parallel. Register its custom classes "
            "with keras.saving.register_keras_serializable in a module that workers can import, or run it with "
            f"n_jobs=1. Received: {type(error).__name__}: {first_line(error)}"
        ) from error
    return model


def _users_classes() -> dict[str, Any]:
    """Return the custom classes that a fresh process does not know: those of the user's own program."""
    known: dict[str, Any] = keras.saving.get_custom_objects()
    return {name: value for name, value in known.items() if not name.startswith("qdq_workbench")}
