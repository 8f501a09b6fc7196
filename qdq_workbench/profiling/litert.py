"""Profiling a `.tflite` file in LiteRT."""

from __future__ import annotations

import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from qdq_workbench.errors import FileAccessError, QDQError
from qdq_workbench.onnx_graph.model_files import is_litert
from qdq_workbench.profiling.entries import reports_of
from qdq_workbench.profiling.latency import LatencyReport
from qdq_workbench.profiling.litert_kernels import OperatorOwners
from qdq_workbench.profiling.litert_library import LiteRTLibrary
from qdq_workbench.profiling.litert_runner import LiteRTRunner, litert_feed
from qdq_workbench.profiling.stopwatch import measure


def check_litert(paths: Sequence[pathlib.Path]) -> None:
    """Raise `FileAccessError` if a file is not a LiteRT file.

    Raises:
        FileAccessError: If a file cannot be read, or is none.
    """
    for path in paths:
        if not path.is_file():
            raise FileAccessError(f"There is no such file. Expected a .tflite file. Received: path={str(path)!r}")
        if not is_litert(path):
            raise FileAccessError(
                "The file is not a LiteRT file: it lacks the identifier TFL3. Expected a file of export_tflite; ONNX "
                "files are measured with runtime='onnxruntime' or 'openvino' (--runtime). "
                f"Received: path={str(path)!r}"
            )


def profile_litert(
    paths: Sequence[pathlib.Path],
    data: Any,
    threads: int | None,
    rounds: int,
    batch: int,
    progress: Callable[[int, int, str], object] | None,
    stop: Callable[[], bool] | None,
) -> LatencyReport:
    """Return the report of a `.tflite` file, with that of its baseline if there is a second file.

    None stands for random data and for LiteRT's own choice of threads within a kernel.
    """
    check_litert(paths)
    library = LiteRTLibrary()
    feeds = [litert_feed(path, data, batch) for path in paths]
    sizes = [{name: (value.shape, str(value.dtype)) for name, value in feed.items()} for feed in feeds]
    if sizes[0] != sizes[-1]:
        raise QDQError(
            "The baseline must be a file of the same model: its inputs differ in name, shape or type. Expected: "
            f"{sizes[0]}. Received: baseline={str(paths[-1])!r} with {sizes[-1]}"
        )
    runners = [LiteRTRunner(library, path, feeds[0], threads) for path in paths]
    found, again = measure(runners, rounds, progress, stop)
    owners = [OperatorOwners(runner.kernels()) for runner in runners]
    settings = {"batch": batch_of(feeds[0]), "threads": threads}
    engine = {"engine": runners[0].engine, "runtime": runners[0].version}
    return reports_of(paths, found, again, owners, None, {**settings, **engine}, [None] * len(paths))


def batch_of(feed: Mapping[str, np.ndarray]) -> int:
    """Return the number of samples of a batch; 1 if any input is a scalar."""
    return len(next(iter(feed.values()))) if all(np.ndim(value) for value in feed.values()) else 1
