"""The checkpoint that `calibrate` resumes from: the observers' statistics of the batches that were read."""

from __future__ import annotations

import hashlib
import json
import pathlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from qdq_workbench._documents import read_document
from qdq_workbench._files import check_place, write_text
from qdq_workbench._fingerprints import add_arrays, fingerprint_of, text_of, unnamed
from qdq_workbench.conversion.engine.float_view import float_view
from qdq_workbench.conversion.engine.quantized_model import QuantizedModel
from qdq_workbench.errors import CheckpointError, QDQError, first_line

_FORMAT = "qdq-workbench/calibration-checkpoint"
# Writing histograms can take as long as a batch, so the next write waits for 20 times the duration of the last one.
_SHARE, _LEAST_SECONDS = 20, 1.0
States = Mapping[str, Mapping[str, Any]]
Batches = Iterator[Sequence[Any]]


class CalibrationCheckpoint:
    """A file with the observers' statistics so far, and a hash of the batches that they come from.

    Args:
        path: The file; None for no checkpoint.
        mark: Hash of everything but the data that the statistics depend on.

    Raises:
        CheckpointError: If the file is of another calibration, or no checkpoint.
        OutputPathError: If no file can be written at the path.
    """

    def __init__(self, path: str | pathlib.Path | None, mark: str) -> None:
        self._path = None if path is None else check_place(path)  # fail now, not after minutes of work
        self._mark, self._digest = mark, hashlib.sha256()
        self._written, self._pause = time.perf_counter(), _LEAST_SECONDS
        self.batches = self.samples = 0
        self.states: States = {}
        self._held = ""
        if self._path is not None and self._path.exists():
            head = read_document(
                self._path, self._read, what="calibration checkpoint", made_by="calibrate", error=CheckpointError
            )
            self.states, self._held, self.batches = head

    def restore(self, resume: Callable[[States, int], None]) -> None:
        """Let observers continue from the statistics in the file.

        Raises:
            CheckpointError: If they cannot.
        """
        try:
            resume(self.states, self.batches)
        except (AttributeError, IndexError, KeyError, TypeError, ValueError, QDQError) as error:
            raise CheckpointError(
                "The file to resume from is damaged. Delete it, or give another path. "
                f"Received: checkpoint={str(self._path)!r} ({type(error).__name__}: {first_line(error)})"
            ) from error

    def behind(
        self, batches: Iterator[Sequence[Any]], read: Callable[[Sequence[Any]], None]
    ) -> Iterator[Sequence[Any]]:
        """Pass the batches that the file stands for to `read`, check that they are the same, and return the others.

        Raises:
            CheckpointError: If the data are others.
        """
        count, self.batches = self.batches, 0
        for _ in range(count):
            inputs = next(batches, None)
            if inputs is None:
                break
            self._count(inputs)
            read(inputs)
        if self.batches < count or (count and self._digest.hexdigest() != self._held):
            raise CheckpointError(
                "The file to resume from is of other data, of other batches, or of data in another order: a dataset "
                "that shuffles gives another order each time. Delete the file, or give another path. "
                f"Received: checkpoint={str(self._path)!r} of {count} batches"
            )
        return batches

    def add(self, inputs: Sequence[Any], states: Callable[[], States]) -> None:
        """Count a batch, and write the file, atomically, unless that was done a moment ago."""
        self._count(inputs)
        if self._path is not None and time.perf_counter() - self._written >= self._pause:
            self.write(states())

    def write(self, states: States) -> None:
        """Write the file, atomically."""
        if self._path is None:
            return
        began = time.perf_counter()
        head = {"format": _FORMAT, "version": 1, "fingerprint": self._mark, "data_sha256": self._digest.hexdigest()}
        found = {name: dict(state) for name, state in states.items()}
        write_text(self._path, json.dumps({**head, "batches": self.batches, "states": found}) + "\n")
        self._written = time.perf_counter()
        self._pause = max(_LEAST_SECONDS, _SHARE * (self._written - began))

    def _count(self, inputs: Sequence[Any]) -> None:
        self.batches += 1
        self.samples += int(np.shape(inputs[0])[0])
        if self._path is not None:
            add_arrays(self._digest, inputs)

    def _read(self, head: Any) -> tuple[States, str, int]:
        if head["format"] != _FORMAT:
            raise ValueError(f"the format is {head['format']!r}")
        if head["fingerprint"] != self._mark:
            raise CheckpointError(
                "The file to resume from is of another calibration: the model, its weights or grids, the method or a "
                f"setting differ. Delete the file, or give another path. Received: checkpoint={str(self._path)!r}"
            )
        return dict(head["states"]), str(head["data_sha256"]), int(head["batches"])


def calibration_mark(q_model: QuantizedModel, *what: Any) -> str:
    """Return a hash of the float model, its weights included, and of JSON-compatible values."""
    layers = [call.operation for call in float_view(q_model).calls]
    variables = [variable for layer in layers for variable in getattr(layer, "variables", ())]
    return fingerprint_of(text_of(unnamed(q_model.plan.graph), *what), variables)
