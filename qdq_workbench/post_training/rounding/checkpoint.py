"""The checkpoint that a run resumes from: the variables of every finished unit."""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Mapping
from typing import Any

import numpy.typing as npt

from qdq_workbench._checkpoints import CheckpointFile
from qdq_workbench._files import check_place
from qdq_workbench.post_training.rounding.report import RoundedUnit, unit_from_dict

Array = npt.NDArray[Any]
_FORMAT = "qdq-workbench/rounding-checkpoint"


@dataclasses.dataclass(frozen=True)
class FinishedUnit:
    """A unit that was learned.

    Args:
        told: Its entry in the report.
        values: The values of its variables.
    """

    told: RoundedUnit
    values: tuple[Array, ...]


class Checkpoint:
    """Finished units in a file; in memory only where there is no path.

    Args:
        path: The file.
        mark: Hash of everything that the result depends on.

    Raises:
        CheckpointError: If the file is of another run, or not a checkpoint.
        OutputPathError: If no file can be written at the path.
    """

    def __init__(self, path: str | pathlib.Path | None, mark: str) -> None:
        self._file: CheckpointFile | None = None
        self.units: list[FinishedUnit] = []
        if path is not None:
            other = "another run: the model, its weights or ranges, the data or the settings"
            # `check_place` fails now, not after minutes of work.
            self._file = CheckpointFile(check_place(path), _FORMAT, mark, made_by="learn_rounding", other=other)
            if self._file.path.exists():
                self.units = self._file.read(_units)

    def add(self, unit: FinishedUnit) -> None:
        """Add a finished unit and write the file, atomically."""
        self.units.append(unit)
        if self._file is None:
            return
        arrays: dict[str, Array] = {}
        for place, each in enumerate(self.units):
            arrays.update({f"{place}/{index}": value for index, value in enumerate(each.values)})
        self._file.write({"units": [dataclasses.asdict(each.told) for each in self.units]}, arrays)


def _units(head: Mapping[str, Any], arrays: Mapping[str, Array]) -> list[FinishedUnit]:
    """Return the units that a file holds."""
    found = []
    for place, told in enumerate(head["units"]):
        count = sum(name.startswith(f"{place}/") for name in arrays)
        found.append(FinishedUnit(unit_from_dict(told), tuple(arrays[f"{place}/{index}"] for index in range(count))))
    return found
