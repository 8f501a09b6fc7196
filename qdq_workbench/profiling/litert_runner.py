"""Runs a `.tflite` file in LiteRT on the CPU, with its profiler and without."""

from __future__ import annotations

import importlib.metadata
import pathlib
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from qdq_workbench.calibration.batches import named_inputs
from qdq_workbench.errors import DataError, QDQError
from qdq_workbench.profiling.kernels import Kernel
from qdq_workbench.profiling.litert_kernels import Operator, kernel_events, layers_of, match_events
from qdq_workbench.profiling.litert_library import Event, LiteRTLibrary, LiteRTSession
from qdq_workbench.profiling.stopwatch import Runner
from qdq_workbench.verification.samples import read_samples


class LiteRTRunner(Runner):
    """One `.tflite` file in LiteRT, on the CPU.

    Args:
        library: LiteRT's library.
        path: The file.
        feed: One batch, by name of the input.
        threads: Threads within a kernel; None for LiteRT's own choice.
    """

    engine = "LiteRT"

    def __init__(
        self, library: LiteRTLibrary, path: pathlib.Path, feed: Mapping[str, np.ndarray], threads: int | None
    ) -> None:
        super().__init__()
        self.version = importlib.metadata.version("ai-edge-litert")
        self._path = path
        self._plain = LiteRTSession(library, path, feed, threads)
        self._profiled = LiteRTSession(library, path, feed, threads, profiled=True)
        self._runs: list[list[Event]] = []

    def run(self) -> None:
        """Run the file once, without the profiler."""
        self._plain.run()

    def run_profiled(self) -> None:
        """Run the file once with the profiler."""
        self._runs.append(kernel_events(self._profiled.run_profiled()))

    def forget(self, count: int) -> None:
        """Leave the first `count` calls with the profiler out of the profile."""
        del self._runs[:count]

    def profile(self) -> dict[str, tuple[float, ...]]:
        """Return the microseconds of every kernel, by name, one value per call."""
        # Events are matched by position, which a run with another number of events does not have.
        runs = [run for run in self._runs if len(run) == len(self._runs[0])]
        names = [kernel.name for kernel in self.kernels()]
        return {name: tuple(float(run[place][2]) for run in runs) for place, name in enumerate(names)}

    def kernels(self, file: Any = None) -> list[Kernel]:  # noqa: ARG002 - the file is the runner's own
        """Return the kernels of a run, in their order."""
        return match_events(read_operators(self._path), self._runs[0])


def litert_feed(path: pathlib.Path, data: Any, batch: int) -> dict[str, np.ndarray]:
    """Return one batch for a `.tflite` file, by name of the input, of the file's fixed batch size.

    `data` are as for `calibrate`, or None for random ones; `batch` is proposed by the error for a file with open sizes.
    """
    ends = _inputs(path)
    sizes = {name: [int(size) for size in detail["shape_signature"]] for name, detail in ends.items()}
    if any(-1 in size for size in sizes.values()):
        raise DataError(
            "LiteRT's profiler takes files with fixed sizes; export the file with a batch size: "
            f"export_tflite(..., batch={batch}). Received: inputs of {sizes}"
        )
    if data is None:
        generator = np.random.default_rng(0)
        return {
            name: (generator.uniform(-1.0, 1.0, size) if detail["dtype"] is np.float32 else np.zeros(size)).astype(
                detail["dtype"]
            )
            for (name, detail), size in zip(ends.items(), sizes.values(), strict=True)
        }
    count = max(size[0] for size in sizes.values() if size)
    arrays = read_samples(named_inputs({name: (None, *size[1:]) for name, size in sizes.items()}), data, count)
    return {
        name: np.resize(array, sizes[name]).astype(detail["dtype"])
        for (name, detail), array in zip(ends.items(), arrays, strict=True)
    }


def read_operators(path: pathlib.Path) -> list[Operator]:
    """Return the operators of a `.tflite` file, in computing order."""
    interpreter = _interpreter(path)
    names = {detail["index"]: str(detail["name"]) for detail in interpreter.get_tensor_details()}
    found = interpreter._get_ops_details()  # noqa: SLF001 - there is no public list of operators
    written = {index for one in found for index in one["outputs"]}
    ends = {detail["index"] for detail in interpreter.get_input_details()}

    def telling(one: Mapping[str, Any]) -> Sequence[str]:
        """Return the names of an operator's outputs, or those of its constants if the outputs have no scope."""
        results = [names[index] for index in one["outputs"] if index in names]
        constants = [names[index] for index in one["inputs"] if index in names and index not in written | ends]
        return results if any("/" in name for name in results) else constants

    layers = layers_of([telling(one) for one in found])
    return [
        Operator(one["op_name"], own or (f"{one['op_name']} {place}",))
        for place, (one, own) in enumerate(zip(found, layers, strict=True))
    ]


def _inputs(path: pathlib.Path) -> dict[str, Mapping[str, Any]]:
    """Return the details of a file's inputs, by the names of its first signature, or of its tensors if it has none."""
    interpreter = _interpreter(path)
    signatures = list(interpreter.get_signature_list())
    if signatures:
        return dict(interpreter.get_signature_runner(signatures[0]).get_input_details())
    return {str(detail["name"]): detail for detail in interpreter.get_input_details()}


def _interpreter(path: pathlib.Path) -> Any:
    from ai_edge_litert.interpreter import Interpreter, OpResolverType

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            # With the XNNPACK delegate, its node would be listed among the file's operators.
            plain = OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES
            interpreter = Interpreter(model_path=str(path), experimental_op_resolver_type=plain)
        interpreter.allocate_tensors()
    except (RuntimeError, ValueError) as error:
        raise QDQError(f"LiteRT does not open {path}: {error}") from error
    return interpreter
