"""The checkpoint of `qdq-workbench finetune`: everything that training changes, after the last complete epoch."""

from __future__ import annotations

import hashlib
import json
import pathlib
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from qdq_workbench._checkpoints import CheckpointFile
from qdq_workbench._files import check_place

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
        self._file: CheckpointFile | None = None
        if path is not None:
            place, mark = check_place(path), _digest(files, settings)
            other = "another training: the model, the data or the settings"
            self._file = CheckpointFile(place, _FORMAT, mark, made_by="a training", other=other)

    def restore(self, model: Any) -> History:
        """Restore the variables of a compiled model and its optimizer; return the history, empty without a file."""
        if self._file is None or not self._file.path.exists():
            return {}
        model.make_train_function()  # creates the optimizer's variables, and resets the ranges that training replaces
        held = _variables(model)

        def build(head: Mapping[str, Any], arrays: Mapping[str, Any]) -> tuple[list[Any], History]:
            history = {str(name): [float(value) for value in told] for name, told in head["history"].items()}
            return [arrays[str(place)] for place in range(len(held))], history

        values, history = self._file.read(build)
        for variable, value in zip(held, values, strict=True):
            variable.assign(value)
        return history

    def save(self, model: Any, history: Mapping[str, list[float]]) -> None:
        """Write the file, atomically: if that fails, the checkpoint of the epoch before remains."""
        if self._file is not None:
            arrays = {str(place): _array(variable) for place, variable in enumerate(_variables(model))}
            self._file.write({"history": history}, arrays)


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
