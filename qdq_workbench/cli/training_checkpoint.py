"""The checkpoint of `qdq-workbench finetune`: everything that training changes, after the last complete epoch."""

from __future__ import annotations

import hashlib
import io
import json
import pathlib
import zipfile
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from qdq_workbench._documents import parse_json
from qdq_workbench._files import check_place, write_atomically
from qdq_workbench.errors import CheckpointError

History = dict[str, list[float]]
_FORMAT = "qdq-workbench/training-checkpoint"
_CHUNK = 1 << 24


class TrainingCheckpoint:
    """A file with the variables of a model and of its optimizer, and the history so far.

    Args:
        path: The file; None for no checkpoint.
        files: The files that the training reads; their contents are part of the fingerprint.
        settings: JSON-compatible settings, also part of the fingerprint.

    Raises:
        OutputPathError: If the path cannot be that of a file.
    """

    def __init__(self, path: str | None, files: Iterable[str], settings: Mapping[str, Any]) -> None:
        self._path = None if path is None else check_place(path)
        self._mark = "" if path is None else _digest(files, settings)

    def restore(self, model: Any) -> History:
        """Restore the variables of a compiled model and its optimizer; return the history, empty without a file."""
        if self._path is None or not self._path.exists():
            return {}
        model.make_train_function()  # creates the optimizer's variables, and resets the ranges that training replaces
        held = _variables(model)
        try:
            with np.load(io.BytesIO(self._path.read_bytes()), allow_pickle=False) as file:
                head = parse_json(str(file["head"]))
                is_ours = head.get("format") == _FORMAT and head.get("fingerprint") == self._mark
                values = [file[str(place)] for place in range(len(held))] if is_ours else []
                history = {str(name): [float(value) for value in told] for name, told in head["history"].items()}
        except (OSError, ValueError, KeyError, TypeError, AttributeError, EOFError, zipfile.BadZipFile) as error:
            raise CheckpointError(
                "The file to resume from is damaged, or no checkpoint of a training. Delete it, or give another path. "
                f"Received: checkpoint={str(self._path)!r} ({type(error).__name__})"
            ) from error
        if not is_ours:
            raise CheckpointError(
                "The file to resume from is of another training: the model, the data or the settings differ. Delete "
                f"the file, or give another path. Received: checkpoint={str(self._path)!r}"
            )
        for variable, value in zip(held, values, strict=True):
            variable.assign(value)
        return history

    def save(self, model: Any, history: Mapping[str, list[float]]) -> None:
        """Write the file, atomically: if that fails, the checkpoint of the epoch before remains."""
        if self._path is None:
            return
        head = {"format": _FORMAT, "version": 1, "fingerprint": self._mark, "history": history}
        arrays: dict[str, Any] = {"head": np.array(json.dumps(head))}
        arrays.update({str(place): _array(variable) for place, variable in enumerate(_variables(model))})

        def write(temporary: pathlib.Path) -> None:
            with temporary.open("wb") as file:
                np.savez(file, **arrays)

        write_atomically(self._path, write)


def _variables(model: Any) -> list[Any]:
    return [*model.variables, *model.optimizer.variables]


def _array(variable: Any) -> Any:
    import keras

    array = keras.ops.convert_to_numpy(variable)
    # float32 holds every bfloat16 exactly, so a resumed training starts from the same values.
    return array.astype(np.float32) if array.dtype.name == "bfloat16" else array  # npz files do not support bfloat16


def _digest(files: Iterable[str], settings: Mapping[str, Any]) -> str:
    digest = hashlib.sha256(json.dumps(settings, sort_keys=True).encode())
    for path in files:
        digest.update(b"\0")
        with pathlib.Path(path).open("rb") as file:
            while chunk := file.read(_CHUNK):
                digest.update(chunk)
    return digest.hexdigest()
