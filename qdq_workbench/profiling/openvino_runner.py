"""Runs a file in OpenVINO on the CPU, with the counters of its execution graph and without."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Mapping
from typing import Any, Literal

import numpy as np
import onnx

from qdq_workbench.errors import QDQError, VerificationError
from qdq_workbench.graph.operators import HEAVY
from qdq_workbench.onnx_graph.qdq_graph import PAIR_OPERATORS
from qdq_workbench.profiling.kernels import Kernel
from qdq_workbench.profiling.stopwatch import Runner

# OpenVINO's names of the remaining nodes of a pair that it has decomposed.
_OF_PAIRS = re.compile(r"(FakeQuantize|Convert|Multiply|Subtract)_\d+")
_SUFFIX = re.compile(r"/(WithoutBiases|DequantizedWeights)$")


@dataclasses.dataclass(frozen=True)
class ExecutedNode:
    """One node of OpenVINO's execution graph.

    Args:
        name: Its name in the counters.
        operator: Its operator, such as "Convolution".
        primitive: The implementation, with the precision at its end, such as "brgconv_avx512_I8".
        originals: The names of the original nodes that it computes; empty for a node that OpenVINO inserted.
    """

    name: str
    operator: str
    primitive: str
    originals: tuple[str, ...] = ()


class OpenVINORunner(Runner):
    """One file in OpenVINO, on the CPU and for latency: one stream.

    Args:
        model: Path of the file, or its contents.
        feed: One batch, by name of the input.
        threads: Threads within a kernel; None for OpenVINO's own choice.

    Raises:
        QDQError: If OpenVINO is not installed.
        VerificationError: If it refuses the file.
    """

    engine = "OpenVINO"

    def __init__(self, model: str | bytes, feed: Mapping[str, np.ndarray], threads: int | None) -> None:
        super().__init__()
        openvino = _openvino()
        self.version = str(openvino.__version__).partition("-")[0]
        settings = {"PERFORMANCE_HINT": "LATENCY", "NUM_STREAMS": "1"}
        if threads is not None:
            settings["INFERENCE_NUM_THREADS"] = str(threads)
        core = openvino.Core()
        try:
            read = core.read_model(model)
            read.reshape({name: list(value.shape) for name, value in feed.items()})
            self._plain = core.compile_model(read, "CPU", settings).create_infer_request()
            self._compiled = core.compile_model(read, "CPU", {**settings, "PERF_COUNT": "YES"})
            self._profiled = self._compiled.create_infer_request()
            self._feed = dict(feed)
            self.run()
        except RuntimeError as error:  # OpenVINO raises it for everything that it does not support
            raise VerificationError(f"OpenVINO refuses the file: {_last_line(error)}") from error
        self._counted: dict[str, list[float]] = {}

    def run(self) -> None:
        """Run the file once, without the counters."""
        # Shared inputs are not copied, so that no copy is timed.
        self._plain.infer(self._feed, share_inputs=True)

    def run_profiled(self) -> None:
        """Run the file once with the counters."""
        self._profiled.infer(self._feed, share_inputs=True)
        for counter in self._profiled.get_profiling_info():
            if counter.status == counter.Status.EXECUTED:
                self._counted.setdefault(counter.node_name, []).append(counter.real_time.total_seconds() * 1e6)

    def forget(self, count: int) -> None:  # noqa: ARG002 - the counters so far are those of these calls
        """Leave the calls so far out of the profile."""
        self._counted.clear()

    def profile(self) -> dict[str, tuple[float, ...]]:
        """Return the microseconds of every executed node, by name, one value per call."""
        return {name: tuple(values) for name, values in self._counted.items()}

    def kernels(self, file: onnx.ModelProto) -> list[Kernel]:
        """Return the executed nodes with the nodes of the file that they compute, in their order."""
        found = []
        for node in self._compiled.get_runtime_model().get_ordered_ops():
            told = {key: str(getattr(value, "value", value)) for key, value in node.get_rt_info().items()}
            # Nodes that are not executed, such as constants, have no counter.
            if node.get_friendly_name() in self._counted:
                originals = tuple(name for name in told.get("originalLayersNames", "").split(",") if name)
                names = node.get_friendly_name(), told.get("layerType", ""), told.get("primitiveType", "")
                found.append(ExecutedNode(*names, originals))
        return match_executed(file, found)


def match_executed(file: onnx.ModelProto, executed: Iterable[ExecutedNode]) -> list[Kernel]:
    """Return the kernels of OpenVINO's execution graph, each with the nodes of the file that it computes."""
    places = {node.name: place for place, node in enumerate(file.graph.node)}
    writers = {name: place for place, node in enumerate(file.graph.node) for name in node.output if name}
    between = _between(file, writers)
    found = []
    for node in executed:
        plain = [_SUFFIX.sub("", name) for name in node.originals]
        # OpenVINO names an original after its node in the file, or after the tensor that the node writes.
        named = {places.get(name, writers.get(name, -1)) for name in plain} - {-1}
        # A ReLU that its quantization clamps anyway is removed: it belongs to the kernel of its two neighbours.
        known = sorted({*named, *(place for place, (before, behind) in between.items() if {before, behind} <= named)})
        operators = [file.graph.node[place].op_type for place in known]
        computed = [place for place, operator in zip(known, operators, strict=True) if operator not in PAIR_OPERATORS]
        kind: Literal["pair", "layout"] | None = None
        if not computed:
            pairs = known or any(_OF_PAIRS.fullmatch(name) for name in plain)
            kind = "pair" if pairs else "layout"
        main = [place for place in computed if file.graph.node[place].op_type in HEAVY]
        leader = next(iter(main or computed or known), None)
        shown = f"{node.operator} ({node.primitive})" if node.primitive else node.operator
        names = tuple(file.graph.node[place].name for place in known)
        # 0 inputs: their number matters for the overhead of ONNX Runtime's profiler alone.
        found.append(Kernel(node.name, shown, None if leader is None else file.graph.node[leader].name, names, 0, kind))
    return found


def _between(file: onnx.ModelProto, writers: Mapping[str, int]) -> dict[int, tuple[int, int]]:
    """Return the producer and the reader of each node that has exactly one of both, by position in the file."""
    readers: dict[int, list[int]] = {}
    for place, node in enumerate(file.graph.node):
        for name in node.input:
            if name in writers:
                readers.setdefault(writers[name], []).append(place)
    found = {}
    for place, node in enumerate(file.graph.node):
        before = {writers[name] for name in node.input if name in writers}
        if len(before) == 1 and len(readers.get(place, ())) == 1:
            found[place] = (before.pop(), readers[place][0])
    return found


def _openvino() -> Any:
    try:
        import openvino
    except ImportError as error:
        raise QDQError(
            "OpenVINO is not installed. Install it with: pip install 'openvino>=2025.0', or measure in ONNX Runtime: "
            "runtime='onnxruntime'. Received: runtime='openvino'"
        ) from error
    return openvino


def _last_line(error: Exception) -> str:
    # OpenVINO's messages begin with places in its source; the last line is the reason.
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1] if lines else repr(error)
