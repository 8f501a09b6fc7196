"""Runs a file in ONNX Runtime on the CPU, with its profiler and without."""

from __future__ import annotations

import json
import pathlib
import statistics
from collections.abc import Mapping

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper

from qdq_workbench.onnx_graph.sessions import open_session, run_once
from qdq_workbench.profiling.kernels import Kernel, match_kernels
from qdq_workbench.profiling.stopwatch import Runner, seconds_of

_OUTSIDE_CALLS = 200


class OnnxRuntimeRunner(Runner):
    """One file in ONNX Runtime.

    Args:
        model: Path of the file, or its contents.
        feed: One batch, by name of the input.
        threads: Threads within a kernel; None for ONNX Runtime's own choice.
        folder: A folder for temporary files, this runner's own.
    """

    engine = "ONNX Runtime"
    version = onnxruntime.__version__

    def __init__(
        self, model: str | bytes, feed: Mapping[str, np.ndarray], threads: int | None, folder: pathlib.Path
    ) -> None:
        super().__init__()
        self._feed = dict(feed)
        self._optimized = folder / "optimized.onnx"
        self._plain = open_session(model, _options(threads))
        options = _options(threads)
        options.enable_profiling = True
        options.profile_file_prefix = str(folder / "profile")
        options.optimized_model_filepath = str(self._optimized)
        # The graph is read back without its weights, and with them it may exceed a protobuf message.
        options.add_session_config_entry("session.optimized_model_external_initializers_file_name", "weights.bin")
        options.add_session_config_entry("session.optimized_model_external_initializers_min_size_in_bytes", "1024")
        self._profiled = open_session(model, options)
        self._names = [output.name for output in self._plain.get_outputs()]
        self._forgotten = 0

    def run(self) -> None:
        """Run the file once, without the profiler."""
        run_once(self._plain, self._names, self._feed)

    def run_profiled(self) -> None:
        """Run the file once with the profiler."""
        run_once(self._profiled, self._names, self._feed)

    def forget(self, count: int) -> None:
        """Leave the first `count` calls with the profiler out of the profile."""
        self._forgotten = count

    def profile(self) -> dict[str, tuple[float, ...]]:
        """Return the microseconds of every kernel, by name, one value per call."""
        kernels: dict[str, list[float]] = {node.name or node.op_type: [] for node in self._graph().graph.node}
        written = pathlib.Path(self._profiled.end_profiling())
        for event in json.loads(written.read_text(encoding="utf-8")):
            name = event["name"].removesuffix("_kernel_time")
            if event["cat"] == "Node" and name in kernels:
                kernels[name].append(float(event["dur"]))
        return {name: tuple(values[self._forgotten :]) for name, values in kernels.items()}

    def kernels(self, file: onnx.ModelProto) -> list[Kernel]:
        """Return the kernels of the optimized graph, in their order."""
        return match_kernels(file, self._graph())

    def _graph(self) -> onnx.ModelProto:
        return onnx.load(self._optimized, load_external_data=False)


def outside_cost(feed: Mapping[str, np.ndarray], threads: int | None) -> float:
    """Return the seconds of a run that are spent outside the kernels, measured on a trivial file with these inputs."""
    kinds = {name: helper.np_dtype_to_tensor_dtype(value.dtype) for name, value in feed.items()}
    inputs = [helper.make_tensor_value_info(name, kinds[name], value.shape) for name, value in feed.items()]
    first, rank = next(iter(feed)), np.ndim(next(iter(feed.values())))
    outputs = [helper.make_tensor_value_info("size", TensorProto.INT64, [rank])]
    # Shape reads no values, so that its kernel takes next to no time for inputs of any size.
    graph = helper.make_graph([helper.make_node("Shape", [first], ["size"])], "outside", inputs, outputs)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    session = open_session(model.SerializeToString(), _options(threads))
    return statistics.median(seconds_of(lambda: run_once(session, ["size"], feed)) for _ in range(_OUTSIDE_CALLS))


def _options(threads: int | None) -> onnxruntime.SessionOptions:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4  # errors are raised as our own instead
    if threads is not None:
        options.intra_op_num_threads = threads
    # Otherwise the threads of one session keep spinning for a while and take cores from the next session.
    options.add_session_config_entry("session.force_spinning_stop", "1")
    return options
