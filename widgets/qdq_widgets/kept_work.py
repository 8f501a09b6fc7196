"""The work on the present state, the variants and the swapped models of steps, as files in a bench's folder.

Models that were only calibrated are built again from their ranges. Each corrected or trained model gets a file with a
new name, so that the folder's former state stays complete until the new one is written.
"""

from __future__ import annotations

import pathlib
import secrets
from collections.abc import Callable, Mapping
from typing import Any

import qdq_workbench as qdq
from qdq_widgets.corrections import Applied
from qdq_widgets.curves import Scores
from qdq_widgets.fits import Fit
from qdq_widgets.snapshots import Snapshot

PATTERN = "variant-*.keras"


class WorkWriter:
    """Writes snapshots; models and calibrations that several of them share are written once.

    Args:
        present: The work on the present state, whose model and calibration are written elsewhere.
        model_file: The present state's model file.
        write_model: Called with a file name and a model.
    """

    def __init__(self, present: Snapshot, model_file: str, write_model: Callable[[str, Any], Any]) -> None:
        self._models: list[tuple[Any, str]] = [(present.model, model_file)] if present.has_weights else []
        self._calibrations: list[Any] = [present.calibration]
        self._write_model = write_model

    @property
    def names(self) -> set[str]:
        """The names of the model files that the snapshots refer to."""
        return {name for _, name in self._models}

    @property
    def calibrations(self) -> list[dict[str, Any]]:
        """The calibrations other than the present one, in the order of their numbers, from 1."""
        return [calibration.to_dict() for calibration in self._calibrations[1:]]

    def to_dict(self, work: Snapshot) -> dict[str, Any]:
        """Return a snapshot as a JSON-compatible dictionary, and write its model if it has weights of its own."""
        return {
            "stage": work.stage,
            "model": self._model(work),
            "calibration": None if work.calibration is None else self._number(work.calibration),
            "scores": {stage: vars(scores) for stage, scores in work.scores.items()},
            "size": work.size,
            # Absolute: the bench may be loaded in another working directory.
            "file": None if work.file is None else str(work.file.absolute()),
            "latency": None if work.latency is None else work.latency.to_dict(),
            "corrections": [applied.to_dict() for applied in work.corrections],
            "fits": [fit.to_dict() for fit in work.fits],
        }

    def _model(self, work: Snapshot) -> str | None:
        if not work.has_weights:
            return None
        for model, name in self._models:
            if model is work.model:
                return name
        name = PATTERN.replace("*", secrets.token_hex(6))
        self._write_model(name, work.model)
        self._models.append((work.model, name))
        return name

    def _number(self, calibration: Any) -> int:
        for number, known in enumerate(self._calibrations):
            if known is calibration:
                return number
        self._calibrations.append(calibration)
        return len(self._calibrations) - 1


class WorkReader:
    """Reads snapshots that a `WorkWriter` wrote.

    Args:
        present: The calibration of the present state, or None.
        others: The `calibrations` of the writer.
        load_model: Called with a file name; returns the model.
    """

    def __init__(self, present: Any, others: Any, load_model: Callable[[str], Any]) -> None:
        self._calibrations = [present, *map(qdq.CalibrationResult.from_dict, others)]
        self._models: dict[str, Any] = {}
        self._load_model = load_model

    def from_dict(self, data: Mapping[str, Any]) -> Snapshot:
        """Rebuild a snapshot from the dictionary of `WorkWriter.to_dict`; the path of a missing file becomes None."""
        name, number = data["model"], data["calibration"]
        if name is not None and name not in self._models:
            self._models[name] = self._load_model(name)
        latency = data.get("latency")  # benches that were saved before times were measured have none
        file = None if data["file"] is None else pathlib.Path(data["file"])
        return Snapshot(
            data["stage"],
            None if name is None else self._models[name],
            None if number is None else self._calibrations[number],
            {stage: Scores(**scores) for stage, scores in data["scores"].items()},
            data["size"],
            file if file is not None and file.is_file() else None,
            None if latency is None else qdq.LatencyReport.from_dict(latency),
            tuple(map(Applied.from_dict, data.get("corrections", ()))),
            tuple(map(Fit.from_dict, data.get("fits", ()))),
        )
