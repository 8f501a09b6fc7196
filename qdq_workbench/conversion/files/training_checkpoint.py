"""The file that a training resumes from."""

from __future__ import annotations

import hashlib
import json
import pathlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from qdq_workbench._checkpoints import CheckpointFile
from qdq_workbench._files import check_place
from qdq_workbench._fingerprints import array_digest

_FORMAT = "qdq-workbench/training-checkpoint"


class TrainingCheckpoint:
    """A file with everything that training changes: the variables of a model and of its optimizer.

    `qdq-workbench finetune` and the bench write one after every epoch. In a training of your own,
    `keras.callbacks.BackupAndRestore` does the same with a folder.

    Args:
        path: The file.
        identity: What tells this training from others, such as its settings: JSON-compatible values, and arrays or
            variables, which are hashed.

    Raises:
        OutputPathError: If the path cannot be that of a file.

    Example:
        >>> import keras, pathlib, tempfile
        >>> x = keras.Input((2,))
        >>> model = keras.Model(x, keras.layers.Dense(1, kernel_initializer="zeros")(x))
        >>> model.compile("adam", "mse")
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     checkpoint = TrainingCheckpoint(pathlib.Path(folder) / "training.npz", {"rate": 0.001})
        ...     before = checkpoint.restore(model)
        ...     checkpoint.save(model, {"epochs": 1})
        ...     _ = model.layers[-1].kernel.assign([[1.0], [1.0]])
        ...     before, checkpoint.restore(model), float(model.layers[-1].kernel[0, 0])
        (None, {'epochs': 1}, 0.0)
    """

    def __init__(self, path: str | pathlib.Path, identity: Any) -> None:
        mark = hashlib.sha256(json.dumps(identity, sort_keys=True, default=_hashed).encode()).hexdigest()
        self._file = _file(path, mark)

    @staticmethod
    def notes_of(path: str | pathlib.Path) -> dict[str, Any] | None:
        """Return the notes in the file of any training, without a model.

        Args:
            path: The file.

        Returns:
            The notes that were saved with it; None without a file.

        Raises:
            CheckpointError: If the file is no checkpoint of a training.
            OutputPathError: If the path cannot be that of a file.
        """
        file = _file(path, "")
        if not file.path.exists():
            return None
        notes = file.head().get("notes")
        return dict(notes) if isinstance(notes, Mapping) else {}

    def restore(self, model: Any) -> dict[str, Any] | None:
        """Restore a compiled model and its optimizer, if the file exists.

        Args:
            model: A compiled model.

        Returns:
            The notes that were saved with it; None without a file, and then the model is unchanged.

        Raises:
            CheckpointError: If the file is of another training, or no checkpoint. The weights are then unchanged.
        """
        if not self._file.path.exists():
            return None
        model.make_train_function()  # creates the optimizer's variables, and resets the ranges that training replaces
        held = _variables(model)

        def build(head: Mapping[str, Any], arrays: Mapping[str, Any]) -> tuple[list[Any], dict[str, Any]]:
            values = [arrays[str(place)] for place in range(len(held))]
            _check_shapes(held, values)
            return values, dict(head["notes"])

        values, notes = self._file.read(build)
        for variable, value in zip(held, values, strict=True):
            variable.assign(value)
        return notes

    def save(self, model: Any, notes: Mapping[str, Any]) -> None:
        """Write the file, atomically: if that fails, the checkpoint before remains.

        Args:
            model: A compiled model that `fit` has trained.
            notes: JSON-compatible values, which `restore` returns.

        Raises:
            OutputPathError: If the file cannot be written.
        """
        arrays = {str(place): _array(variable) for place, variable in enumerate(_variables(model))}
        self._file.write({"notes": dict(notes)}, arrays)


def _hashed(value: Any) -> str:
    if not hasattr(value, "__array__"):
        raise TypeError(f"{type(value).__name__} is neither JSON-compatible nor an array")
    return array_digest(value)


def _file(path: str | pathlib.Path, mark: str) -> CheckpointFile:
    other = "another training: the model, the data or the settings"
    return CheckpointFile(check_place(path), _FORMAT, mark, made_by="a training", other=other)


def _check_shapes(variables: list[Any], values: list[Any]) -> None:
    other = [each.path for each, value in zip(variables, values, strict=True) if tuple(each.shape) != value.shape]
    if other:
        raise ValueError(f"other shapes of {other[:3]}")


def _variables(model: Any) -> list[Any]:
    return [*model.variables, *model.optimizer.variables]


def _array(variable: Any) -> Any:
    import keras

    array = keras.ops.convert_to_numpy(variable)
    # float32 holds every bfloat16 exactly, so a resumed training starts from the same values.
    return array.astype(np.float32) if array.dtype.name == "bfloat16" else array  # npz files do not support bfloat16
