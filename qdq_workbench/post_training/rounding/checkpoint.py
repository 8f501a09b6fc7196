"""The checkpoint that a run resumes from: the variables of every finished unit."""

from __future__ import annotations

import dataclasses
import io
import json
import pathlib
import zipfile
from typing import Any

import numpy as np
import numpy.typing as npt

from qdq_workbench._documents import parse_json
from qdq_workbench._files import check_place, write_atomically
from qdq_workbench.errors import CheckpointError
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
        self._path = None if path is None else check_place(path)  # fail now, not after minutes of work
        self._mark = mark
        self.units: list[FinishedUnit] = []
        if self._path is not None and self._path.exists():
            self.units = self._read(self._path)

    def add(self, unit: FinishedUnit) -> None:
        """Add a finished unit and write the file, atomically."""
        self.units.append(unit)
        if self._path is None:
            return
        told = [dataclasses.asdict(each.told) for each in self.units]
        head = json.dumps({"format": _FORMAT, "version": 1, "fingerprint": self._mark, "units": told})
        arrays: dict[str, Any] = {"head": np.array(head)}
        for place, each in enumerate(self.units):
            arrays.update({f"{place}/{index}": value for index, value in enumerate(each.values)})

        def write(temporary: pathlib.Path) -> None:
            # To a name without the suffix .npz, NumPy would append it.
            with temporary.open("wb") as file:
                np.savez(file, **arrays)

        write_atomically(self._path, write)

    def _read(self, path: pathlib.Path) -> list[FinishedUnit]:
        try:
            with np.load(io.BytesIO(path.read_bytes()), allow_pickle=False) as file:
                head = parse_json(str(file["head"]))
                is_ours = head.get("format") == _FORMAT and head.get("fingerprint") == self._mark
                found = _units(head, dict(file)) if is_ours else None
        except (OSError, ValueError, KeyError, TypeError, AttributeError, EOFError, zipfile.BadZipFile) as error:
            raise CheckpointError(
                "The file to resume from is damaged, or no checkpoint of learn_rounding. Delete it, or give another "
                f"path. Received: checkpoint={str(path)!r} ({type(error).__name__})"
            ) from error
        if found is None:
            raise CheckpointError(
                "The file to resume from is of another run: the model, its weights or ranges, the data or the settings "
                f"differ. Delete the file, or give another path. Received: checkpoint={str(path)!r}"
            )
        return found


def _units(head: dict[str, Any], arrays: dict[str, Array]) -> list[FinishedUnit]:
    """Return the units that a file holds."""
    found = []
    for place, told in enumerate(head["units"]):
        count = sum(name.startswith(f"{place}/") for name in arrays)
        found.append(FinishedUnit(unit_from_dict(told), tuple(arrays[f"{place}/{index}"] for index in range(count))))
    return found
