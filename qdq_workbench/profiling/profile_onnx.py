"""`profile_onnx`: the times of a file's kernels in ONNX Runtime, OpenVINO or LiteRT, by layer."""

from __future__ import annotations

import contextlib
import dataclasses
import pathlib
from collections.abc import Callable, Mapping
from typing import Any, Literal

import numpy as np
import onnx

from qdq_workbench._files import as_path
from qdq_workbench._interrupts import interrupts_held
from qdq_workbench._numbers import whole
from qdq_workbench._progress import check_functions, is_count
from qdq_workbench._scratch import scratch_folder
from qdq_workbench.errors import DataError, FileAccessError, QDQError
from qdq_workbench.export.metadata import noted_target
from qdq_workbench.foreign.lint import load_graph
from qdq_workbench.onnx_graph.processor import may_saturate
from qdq_workbench.onnx_graph.sessions import fed_inputs, session_source
from qdq_workbench.profiling.entries import reports_of
from qdq_workbench.profiling.latency import LatencyReport
from qdq_workbench.profiling.litert import batch_of, profile_litert
from qdq_workbench.profiling.onnxruntime_runner import OnnxRuntimeRunner, outside_cost
from qdq_workbench.profiling.openvino_runner import OpenVINORunner
from qdq_workbench.profiling.owners import KernelOwners, noted_plan, with_names
from qdq_workbench.profiling.stopwatch import Runner, measure
from qdq_workbench.verification.alone import random_samples
from qdq_workbench.verification.samples import samples_of_file

#: More threads than any processor has; a runtime starts as many as it is told, or ends the process.
MOST_THREADS = 1024
_RUNTIMES = ("onnxruntime", "openvino", "litert")


@interrupts_held()
def profile_onnx(
    path: str | pathlib.Path,
    data: Any = None,
    *,
    threads: int | None = None,
    rounds: int = 12,
    batch: int = 1,
    baseline: str | pathlib.Path | None = None,
    runtime: Literal["onnxruntime", "openvino", "litert"] = "onnxruntime",
    progress: Callable[[int, int, str], object] | None = None,
    stop: Callable[[], bool] | None = None,
) -> LatencyReport:
    """Measure the times of a runtime's kernels for a file on the CPU, by the layers that they compute.

    The file is run in turns: without a profiler for the time of a run, and with the runtime's own profiler for the
    times of its kernels (in OpenVINO the counters of its execution graph, in LiteRT the events of its profiler, both
    in whole microseconds). In ONNX Runtime the profiler's overhead is subtracted from every kernel so that the kernels
    and the time outside of them, which is measured separately, add up to the run; in the other runtimes the kernels
    are scaled down if their sum exceeds the run. A kernel belongs to its main layer; the layers that are fused into it
    are listed with that layer. Time that belongs to no layer is listed separately: Q/DQ nodes that no kernel absorbs,
    changes of layout, and the time outside the kernels. A baseline, such as the float file of the same model, runs in
    turns with the file, in the same rounds.

    Args:
        path: The file: one of `export_onnx` for times by layer of the plan, any other one for times by node; with
            `runtime="litert"` a `.tflite` file, whose layers are found by the names of its tensors.
        data: Samples, in any form that `calibrate` takes, of which the first batch is used; None for random ones. The
            time depends on their shapes, hardly on their values.
        threads: Threads within a kernel, 1 to 1024; None for the runtime's own choice: the number of cores, in LiteRT
            one.
        rounds: Number of turns of every file, at least 1; a turn lasts 30 ms, or at least six runs.
        batch: Samples per run, at least 1; a file with a fixed batch keeps its own.
        baseline: A file with the same inputs to compare with.
        runtime: "onnxruntime"; "openvino", which needs the package `openvino`; or "litert", which needs the package
            `ai-edge-litert` (TensorFlow's own interpreter has no profiler).
        progress: Called after every round with the rounds done, their total, and "rounds".
        stop: Called after every round; when it returns True, the measurement ends with the rounds so far.

    Returns:
        The times, with their noise.

    Raises:
        FileAccessError: If a file cannot be read, or is not a model of the runtime's format.
        DataError: If the data do not fit the file, sizes besides the batch are open and there are no data, or
            `progress` or `stop` is no function.
        QDQError: If threads, rounds or batch are no such numbers, the baseline has other inputs, or the runtime
            is unknown or not installed.
        VerificationError: If the runtime rejects a file.

    Example:
        >>> import keras, pathlib, tempfile
        >>> from qdq_workbench import calibrate, export_onnx, quantize_model
        >>> image = keras.Input((2,), name="image")
        >>> q_model = quantize_model(keras.Model(image, keras.layers.Dense(1, name="head")(image)))
        >>> _ = calibrate(q_model, np.ones((1, 2)), verbose=False)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     exported = export_onnx(q_model, pathlib.Path(folder) / "model.onnx")
        ...     report = profile_onnx(exported.path, threads=1, rounds=1)
        >>> [entry.layer for entry in report.layers]
        ['head']
    """
    if runtime not in _RUNTIMES:
        raise QDQError(f"The runtime must be one of {', '.join(map(repr, _RUNTIMES))}. Received: runtime={runtime!r}")
    for name, value in (("threads", threads), ("rounds", rounds), ("batch", batch)):
        if value is not None and not is_count(value):
            raise QDQError(f"{name} must be an integer of at least 1. Received: {name}={value!r}")
    if threads is not None and threads > MOST_THREADS:
        raise QDQError(f"threads may be {MOST_THREADS} at most. Received: threads={threads!r}")
    threads, rounds, batch = map(whole, (threads, rounds, batch))  # the report is saved as JSON
    check_functions(progress=progress, stop=stop)
    paths = [as_path(one, FileAccessError) for one in ((path,) if baseline is None else (path, baseline))]
    if runtime == "litert":
        return profile_litert(paths, data, threads, rounds, batch, progress, stop)
    files = [with_names(load_graph(one)) for one in paths]
    feed = _feed(files[0], data, batch)
    if baseline is not None:
        _check_inputs(files[0], files[1], paths[1])
    with contextlib.ExitStack() as stack:
        runners = [_runner(runtime, stack, file, feed, threads) for file in files]
        found, again = measure(runners, rounds, progress, stop)
        kernels = [runner.kernels(file) for runner, file in zip(runners, files, strict=True)]
        engine = {"engine": runners[0].engine, "runtime": runners[0].version}
        # Frees the sessions before the folders of their files are removed.
        del runners
    # A float baseline holds no plan: its nodes belong to the layers of the other file's plan.
    plan = noted_plan(files)
    report = reports_of(
        paths,
        found,
        again,
        [KernelOwners(file, executed, plan) for file, executed in zip(files, kernels, strict=True)],
        outside_cost(feed, threads) if runtime == "onnxruntime" else None,
        {"batch": batch_of(feed), "threads": threads, **engine},
        [noted_target(file) for file in files],
    )
    return dataclasses.replace(report, saturates=runtime == "onnxruntime" and may_saturate(files[0]))


def _runner(
    runtime: str,
    stack: contextlib.ExitStack,
    file: onnx.ModelProto,
    feed: Mapping[str, np.ndarray],
    threads: int | None,
) -> Runner:
    source = stack.enter_context(session_source(file))
    if runtime == "openvino":
        return OpenVINORunner(source, feed, threads)
    return OnnxRuntimeRunner(source, feed, threads, stack.enter_context(scratch_folder()))


def _feed(file: onnx.ModelProto, data: Any, batch: int) -> dict[str, np.ndarray]:
    """Return one batch by name of the input; for a file with a fixed batch it is resized to that."""
    samples = random_samples(file, batch) if data is None else samples_of_file(file, data, batch)
    if samples is None:
        shapes = {name: shape for name, (shape, _) in fed_inputs(file).items()}
        raise DataError(f"Sizes besides the batch are open; pass data that say them. Received: inputs of {shapes}")
    sizes = {name: shape[0] for name, (shape, _) in fed_inputs(file).items() if shape}
    return {
        name: np.resize(value, (sizes.get(name) or len(value), *value.shape[1:])) if value.ndim else value
        for name, value in samples.items()
    }


def _check_inputs(file: onnx.ModelProto, baseline: onnx.ModelProto, path: pathlib.Path) -> None:
    wanted, given = fed_inputs(file), fed_inputs(baseline)
    if wanted != given:
        raise QDQError(
            "The baseline must be a file of the same model: its inputs differ in name, shape or type. Expected: "
            f"{wanted}. Received: baseline={str(path)!r} with {given}"
        )
