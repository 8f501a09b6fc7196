"""Times of placements in ONNX Runtime, each measured in turns with the file of the given plan."""

from __future__ import annotations

import contextlib
from typing import Any, cast

from qdq_workbench._scratch import scratch_folder
from qdq_workbench.analysis.search_known import Known
from qdq_workbench.conversion.engine.quantized_model import QuantizedModel
from qdq_workbench.export.onnx_export import export_onnx
from qdq_workbench.profiling.latency import LatencyReport
from qdq_workbench.profiling.profile_onnx import profile_onnx

# The first time chooses a placement and is biased by that; the second, longer one replaces it.
_ROUNDS = 8
_MORE_ROUNDS = 32
_REFERENCE = "reference"


class Stopwatch:
    """Times the files of placements, each in turns with the reference: the file of the given plan.

    Args:
        q_model: The model of the given plan.
        threads: Threads within a kernel; None for ONNX Runtime's own choice.
        data: Inputs, of which the first sample is used.
        known: Stores the time of the reference, so that a resumed search compares with its earlier times.
    """

    def __init__(self, q_model: QuantizedModel, threads: int | None, data: Any, known: Known) -> None:
        self._q_model, self._threads, self._data, self._known = q_model, threads, data, known
        self._scratch = contextlib.ExitStack()
        self._folder = self._scratch.enter_context(scratch_folder())
        self._reference = self._folder / "reference.onnx"

    def close(self) -> None:
        """Remove the files."""
        self._scratch.close()

    def ms(self, model: QuantizedModel, *, longer: bool = False) -> float:
        """Return the milliseconds per run of a model's file.

        The machine's speed drifts, so the result is the ratio to the reference in the same rounds, times the first
        measured time of the reference. `longer` measures in more rounds.
        """
        report = self.profile(model, _MORE_ROUNDS if longer else _ROUNDS)
        beside = cast("LatencyReport", report.baseline)  # `profile` asks for one
        reference_ms = self._known.once(self._known.times, _REFERENCE, lambda: beside.total_ms)
        return reference_ms * report.total_ms / beside.total_ms

    def profile(self, model: QuantizedModel, rounds: int = _ROUNDS) -> LatencyReport:
        """Return the times of a model's file beside the reference."""
        # At the first use: a resumed search may know all times.
        if not self._reference.exists():
            export_onnx(self._q_model, self._reference)
        path = self._folder / "trial.onnx"
        export_onnx(model, path)
        return profile_onnx(path, self._data, threads=self._threads, rounds=rounds, baseline=self._reference)
