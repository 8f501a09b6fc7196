"""Work in joblib's workers: processes, threads, or a cluster, as `joblib.parallel_config` chooses.

A Keras model cannot be sent to another process. The job carries the model's file instead, so workers on other machines
need no shared folder; each worker loads it once and keeps the state that `prepare` builds from it.
"""

from __future__ import annotations

import dataclasses
import threading
import uuid
import warnings
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import BrokenExecutor
from typing import Any, Generic, TypeVar

import joblib
import keras
import numpy as np
import numpy.typing as npt

from qdq_workbench._scratch import scratch_folder
from qdq_workbench.analysis.samples import Samples
from qdq_workbench.conversion.engine.quantized_model import QuantizedModel
from qdq_workbench.errors import UnsupportedModelError, WorkerError, first_line

State = TypeVar("State")
Item = TypeVar("Item")
Result = TypeVar("Result")


@dataclasses.dataclass(frozen=True, eq=False)
class Job(Generic[State]):
    """The common input of all workers of one job.

    Args:
        file: The model's file as an array of bytes, which joblib shares between processes and dask sends only once.
        samples: The data.
        settings: Further input of `prepare`.
        prepare: Builds a worker's state from the loaded model and this job.
        custom_objects: The custom classes that a fresh process does not know.
        key: Unique identifier of this job.
        idle: The states of worker threads of this process that no item is computed with; None in another process.
    """

    file: npt.NDArray[np.uint8]
    samples: Samples
    settings: Any
    prepare: Callable[[QuantizedModel, Job[State]], State]
    custom_objects: dict[str, Any]
    key: str = dataclasses.field(default_factory=lambda: uuid.uuid4().hex)
    idle: list[State] | None = dataclasses.field(default_factory=list)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "idle": None}

    def __sizeof__(self) -> int:
        """Return the bytes of the model and the data: dask sends large arguments to its workers once, ahead."""
        arrays = [array for batch in self.samples.batches for array in batch]
        return object.__sizeof__(self) + sum(array.nbytes for array in (self.file, *arrays))


def job_of(
    q_model: QuantizedModel, samples: Samples, settings: Any, prepare: Callable[[QuantizedModel, Job[State]], State]
) -> Job[State]:
    """Return a job for workers."""
    with scratch_folder() as folder:
        path = folder / "model.keras"
        q_model.save(path)
        file = np.fromfile(path, np.uint8)
    return Job(file, samples, settings, prepare, _users_classes())


def in_workers(
    job: Job[State], work: Callable[[State, Item], Result], items: Sequence[Item], n_jobs: int | None
) -> Generator[tuple[int, Result], None, None]:
    """Yield the position and the result of every item, in the order in which they are ready.

    `work` gets the state that the job's `prepare` built; None as `n_jobs` stands for the number of
    `joblib.parallel_config`. A worker that ends before its work does raises `WorkerError`, one that cannot load the
    model `UnsupportedModelError`.
    """
    # A generator: callers write a checkpoint after every result and may stop before the last one.
    pool = joblib.Parallel(n_jobs=n_jobs, return_as="generator_unordered")
    try:
        results = pool(joblib.delayed(_run)(job, work, position, item) for position, item in enumerate(items))
        try:
            for result in results:  # noqa: UP028 - delegating would close them before the filter below is set
                yield result
        finally:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", UserWarning)  # joblib warns if a caller stops before the last result
                results.close()
    except Exception as error:
        # dask is an optional package, so its class is known by name only.
        if not isinstance(error, BrokenExecutor) and type(error).__name__ != "KilledWorker":  # the latter: dask's
            raise
        raise WorkerError(
            "A worker process ended before its work did; most often memory was short. Run it again with fewer workers, "
            "n_jobs=1 needs none; where a checkpoint was given, it goes on from there. "
            f"Received: n_jobs={pool.n_jobs}: {first_line(error)}"
        ) from error


_READY = threading.local()  # the state of each worker process


def _run(job: Job[State], work: Callable[[State, Item], Result], position: int, item: Item) -> tuple[int, Result]:
    if job.idle is not None:
        # joblib starts threads anew at every call, so the job keeps their states.
        try:
            state = job.idle.pop()
        except IndexError:
            state = job.prepare(_load(job), job)
        try:
            return position, work(state, item)
        finally:
            job.idle.append(state)
    if getattr(_READY, "key", None) != job.key:
        _READY.key, _READY.state = None, None  # frees the last state before the next one is built
        _READY.state = job.prepare(_load(job), job)
        # Last: a state whose `prepare` failed is not ready.
        _READY.key = job.key
    return position, work(_READY.state, item)


def _load(job: Job[Any]) -> QuantizedModel:
    import qdq_workbench  # noqa: F401 - registers our layers in a fresh process

    try:
        with scratch_folder() as folder:
            path = folder / "model.keras"
            job.file.tofile(path)
            # The file was written by the caller a moment ago, so its Lambda layers are the user's own.
            model: QuantizedModel = keras.models.load_model(
                path, custom_objects=job.custom_objects, compile=False, safe_mode=False
            )
    except Exception as error:
        raise UnsupportedModelError(
            "A worker process cannot load the model, so it cannot be measured in parallel. Register its custom classes "
            "with keras.saving.register_keras_serializable in a module that workers can import, or run it with "
            f"n_jobs=1. Received: {type(error).__name__}: {first_line(error)}"
        ) from error
    return model


def _users_classes() -> dict[str, Any]:
    """Return the custom classes that a fresh process does not know: those of the user's own program."""
    known: dict[str, Any] = keras.saving.get_custom_objects()
    return {name: value for name, value in known.items() if not name.startswith("qdq_workbench")}
