"""The measurements of a search, as its checkpoint stores them."""

from __future__ import annotations

import dataclasses
import json
import pathlib
from collections.abc import Callable, Mapping
from typing import Any

from qdq_workbench._documents import read_document
from qdq_workbench._files import check_place, write_text
from qdq_workbench.analysis.levels import Level
from qdq_workbench.errors import CheckpointError

_FORMAT = "qdq-workbench/search-checkpoint"
_VERSION = 3
#: The key, among the times of placements, of the seconds that it takes to time one.
SECONDS = "seconds to time a placement"


@dataclasses.dataclass(frozen=True)
class Known:
    """The measurements by placement, which the checkpoint stores.

    Args:
        path: The checkpoint; None for none.
        mark: The fingerprint of the search.
        accuracies: The metric on the samples of the search, of built models.
        switched: The same, measured by switches in one copy of the model.
        times: Milliseconds per run.
        confirmed: The metric on the held-out samples.
        groups: Groups of layers that share kernels; those that gain least from INT8 come first.
        again: Milliseconds per run, timed a second time in more rounds.
        gains: Milliseconds per run that each of `groups` gains from INT8.
    """

    path: str | pathlib.Path | None = None
    mark: str = ""
    accuracies: dict[str, float] = dataclasses.field(default_factory=dict)
    switched: dict[str, float] = dataclasses.field(default_factory=dict)
    times: dict[str, float] = dataclasses.field(default_factory=dict)
    confirmed: dict[str, float] = dataclasses.field(default_factory=dict)
    groups: list[list[str]] = dataclasses.field(default_factory=list)
    again: dict[str, float] = dataclasses.field(default_factory=dict)
    gains: list[float] = dataclasses.field(default_factory=list)

    @classmethod
    def read(cls, path: str | pathlib.Path | None, mark: str) -> Known:
        """Return the measurements of a checkpoint; none if there is no file at the path.

        Raises:
            CheckpointError: If it is of another search, or no checkpoint.
        """
        if path is None or not check_place(path).exists():
            return cls(path, mark)

        def build(data: Any) -> Known:
            ours = isinstance(data, dict) and (data.get("format"), data.get("version")) == (_FORMAT, _VERSION)
            if not ours or data.get("fingerprint") != mark:
                raise CheckpointError(
                    "The file to resume from is of another search, or of an earlier version: the model, its weights or "
                    "ranges, the plan, the data, the calibration data, the metric or the settings differ. Delete the "
                    f"file, or give another path. Received: checkpoint={str(path)!r}"
                )
            numbers = ("accuracies", "switched", "times", "confirmed", "again")
            groups = [[str(layer) for layer in group] for group in data["groups"]]
            gains = [float(gain) for _, gain in zip(groups, data["gains"], strict=True)]
            return cls(path, mark, groups=groups, gains=gains, **{name: _numbers(data[name]) for name in numbers})

        return read_document(
            path, build, what="checkpoint of a search", made_by="search(checkpoint=)", error=CheckpointError
        )

    def once(self, known: dict[str, float], key: str, measure: Callable[[], float]) -> float:
        """Return the value of a key in one of the mappings above; measure a new one and write the checkpoint."""
        if key not in known:
            known[key] = measure()
            self.write()
        return known[key]

    def write(self) -> None:
        """Write the checkpoint, if there is one."""
        if self.path is not None:
            data = {"format": _FORMAT, "version": _VERSION, "fingerprint": self.mark, **dataclasses.asdict(self)}
            del data["path"], data["mark"]
            write_text(self.path, json.dumps(data, indent=2) + "\n")


def key_of(levels: Mapping[str, Level], start: str = "") -> str:
    """Return the key of a placement in the checkpoint; `start` is empty for the given plan."""
    # A layer at its planned level (None) has the key of a layer that is not named; neither order counts.
    named = json.dumps(dict(sorted((layer, level) for layer, level in levels.items() if level is not None)))
    return f"{start} {named}" if start else named


def _numbers(found: Mapping[str, Any]) -> dict[str, float]:
    return {str(key): float(value) for key, value in found.items()}
