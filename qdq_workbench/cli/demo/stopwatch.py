"""Accuracy and speed of ONNX files in ONNX Runtime."""

from __future__ import annotations

import pathlib
import statistics
import time
from typing import Any

import numpy as np

from qdq_workbench.cli.demo.data import ImageData
from qdq_workbench.cli.demo.training import SCORING_BATCH, share_correct

ROUNDS = 15
_SECONDS_PER_SAMPLE = 0.05


def open_session(path: pathlib.Path, threads: int = 2) -> Any:
    """Return an ONNX Runtime session on the CPU with exact sums, whose idle threads do not spin."""
    import onnxruntime

    from qdq_workbench.onnx_graph.processor import EXACT_SUMS, kernels_saturate

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 3
    # Spinning threads of one session would slow down the other one of an interleaved comparison.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    if kernels_saturate():
        options.add_session_config_entry(EXACT_SUMS, "1")
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def onnx_accuracy(path: pathlib.Path, data: ImageData) -> float:
    """Return the share of the test images that an ONNX file puts into the right class."""
    session = open_session(path)
    name = session.get_inputs()[0].name
    scores = [
        session.run(None, {name: data.x_test[start : start + SCORING_BATCH]})[0]
        for start in range(0, len(data.x_test), SCORING_BATCH)
    ]
    return share_correct(np.concatenate(scores), data.y_test)


def speed_ratio(baseline: pathlib.Path, candidate: pathlib.Path, images: np.ndarray) -> float:
    """Return time of the baseline / time of the candidate for one batch: the median over interleaved rounds."""
    runs = [_runner(path, images) for path in (baseline, candidate)]
    repeats = [max(1, round(_SECONDS_PER_SAMPLE / run(3))) for run in runs]
    ratios = []
    for number in range(ROUNDS):
        # Both times of a ratio are measured directly one after the other, and the order alternates.
        order = (0, 1) if number % 2 else (1, 0)
        seconds = {index: runs[index](repeats[index]) for index in order}
        ratios.append(seconds[0] / seconds[1])
    return statistics.median(ratios)


def _runner(path: pathlib.Path, images: np.ndarray) -> Any:
    session = open_session(path)
    feed = {session.get_inputs()[0].name: images}
    # The first run also allocates memory, so it is not measured.
    session.run(None, feed)

    def seconds_per_run(repeats: int) -> float:
        start = time.perf_counter()
        for _ in range(repeats):
            session.run(None, feed)
        return (time.perf_counter() - start) / repeats

    return seconds_per_run
