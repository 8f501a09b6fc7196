"""Files that a run resumes from: a head as JSON, with the fingerprint of the run, and arrays."""

from __future__ import annotations

import dataclasses
import io
import json
import pathlib
import zipfile
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import numpy as np

from qdq_workbench._documents import parse_json
from qdq_workbench._files import write_atomically
from qdq_workbench.errors import CheckpointError

Found = TypeVar("Found")
_DAMAGES = (OSError, ValueError, KeyError, TypeError, AttributeError, EOFError, zipfile.BadZipFile)


@dataclasses.dataclass(frozen=True)
class CheckpointFile:
    """The file of one run.

    Args:
        path: The file.
        format: Name of the format in its head.
        fingerprint: Hash of everything that the result of the run depends on.
        made_by: The kind of run, for messages, such as "a training".
        other: What another fingerprint means, for messages, such as "another run: the data differ".
    """

    path: pathlib.Path
    format: str
    fingerprint: str
    made_by: str
    other: str

    def read(self, build: Callable[[Mapping[str, Any], Mapping[str, Any]], Found]) -> Found:
        """Return what a function builds from the head and the arrays; refuse a file of another run."""
        try:
            with np.load(io.BytesIO(self.path.read_bytes()), allow_pickle=False) as file:
                head = parse_json(str(file["head"]))
                if head.get("format") == self.format and head.get("fingerprint") == self.fingerprint:
                    return build(head, file)
        except _DAMAGES as error:
            raise self._damaged(error) from error
        raise CheckpointError(
            f"The file to resume from is of {self.other} differ. Delete the file, or give another path. "
            f"Received: checkpoint={str(self.path)!r}"
        )

    def head(self) -> Mapping[str, Any]:
        """Return the head, of whichever run it is; the arrays are not read."""
        try:
            with np.load(self.path, allow_pickle=False) as file:
                head = parse_json(str(file["head"]))
                if head.get("format") == self.format:
                    return dict(head)
        except _DAMAGES as error:
            raise self._damaged(error) from error
        raise self._damaged(ValueError("another format"))

    def write(self, head: Mapping[str, Any], arrays: Mapping[str, Any]) -> None:
        """Write the file, atomically: if that fails, the one before remains."""
        text = json.dumps({"format": self.format, "version": 1, "fingerprint": self.fingerprint, **head})

        def write(temporary: pathlib.Path) -> None:
            # To a name without the suffix .npz, NumPy would append it.
            with temporary.open("wb") as file:
                np.savez(file, head=np.array(text), **arrays)

        write_atomically(self.path, write)

    def _damaged(self, error: Exception) -> CheckpointError:
        return CheckpointError(
            f"The file to resume from is damaged, or no checkpoint of {self.made_by}. Delete it, or give another "
            f"path. Received: checkpoint={str(self.path)!r} ({type(error).__name__})"
        )
