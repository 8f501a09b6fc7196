"""Atomic saving of models and weights; Keras itself writes into an existing file.

Before HDF5 writes to the disk, the free space is checked, because HDF5 ends the process on a full disk.
"""

from __future__ import annotations

import math
import os
import pathlib
from collections.abc import Callable
from typing import Any

import keras

from qdq_workbench._files import write_atomically, write_folder
from qdq_workbench._scratch import check_room
from qdq_workbench.errors import OutputPathError, UnsupportedModelError
from qdq_workbench.graph_builder.layer_parts import inner_layers

_HDF5 = (".h5", ".hdf5")
#: Operations that Keras reads from HDF5 as the layers of the same names, which compute the same.
_READ_AS_LAYERS = ("Concatenate", "Softmax")
_BYTES_PER_VARIABLE, _BYTES_BESIDE = 8 << 10, 16 << 20  # overhead of HDF5 per variable; room for configurations


def save_whole(
    model: Any, write: Callable[..., Any], path: Any, *, overwrite: bool, zipped: bool | None, **arguments: Any
) -> None:
    """Save a model with `write`, Keras's `model.save`, but atomically; `zipped` is False for a folder.

    Names that Keras rejects, and remote paths (`://`), are passed to Keras unchanged.
    """
    as_folder = zipped is not None and not zipped
    if not as_folder:
        check_hdf5(model, path)
    fits = not str(path).endswith(".keras") if as_folder else str(path).endswith((".keras", *_HDF5))
    if not fits or not _is_local(path):
        write(path, overwrite=overwrite, zipped=zipped, **arguments)
        return
    place = _place(path)
    if not overwrite and place.exists() and not _may_replace(path):
        return

    def save(temporary: pathlib.Path, folder: pathlib.Path) -> None:
        # Keras builds the HDF5 part of an archive in memory, unless the weights are too large for it.
        if not str(temporary).endswith(".keras"):
            _check_room_for_hdf5(model, folder)
        write(temporary, overwrite=True, zipped=zipped, **arguments)

    if as_folder:
        write_folder(place, lambda temporary: save(temporary, temporary))
        return
    if place.suffix in _HDF5:
        _make_parents(place)  # as Keras does for this format alone
    write_atomically(place, lambda temporary: save(temporary, temporary.parent))


def save_weights_whole(model: Any, write: Callable[..., Any], path: Any, *, overwrite: bool, **arguments: Any) -> None:
    """Save a model's weights with `write`, Keras's `model.save_weights`, but atomically if they are one file."""
    in_parts = arguments.get("max_shard_size") is not None  # several files, one of which names the others
    if in_parts or not str(path).endswith(".weights.h5") or not _is_local(path):
        write(path, overwrite=overwrite, **arguments)
        return
    place = _place(path)

    def save(temporary: pathlib.Path) -> None:
        _check_room_for_hdf5(model, temporary.parent)
        write(temporary, overwrite=True, **arguments)

    if overwrite or not place.exists() or _may_replace(path):
        write_atomically(place, save)


def check_hdf5(model: Any, path: Any) -> None:
    """Raise an error if the path is HDF5 and the model has operations, which Keras would read as layers.

    Raises:
        UnsupportedModelError: If Keras could not load the file.
    """
    if not str(path).endswith(_HDF5):
        return
    models = [part for part in (model, *inner_layers(model)) if hasattr(part, "operations")]
    operations = [each for part in models for each in part.operations if not isinstance(each, keras.layers.Layer)]
    lost = sorted({type(each).__name__ for each in operations} - {*_READ_AS_LAYERS})
    if lost:
        raise UnsupportedModelError(
            "Keras cannot load the operations of such a model from an HDF5 file, so nothing was written. Save it as "
            f".keras: model.save({pathlib.Path(str(path)).with_suffix('.keras').name!r}). "
            f"Received: path={str(path)!r}, operations {', '.join(lost)}"
        )


def _check_room_for_hdf5(model: Any, folder: pathlib.Path) -> None:
    """Raise OSError if a folder has no room for the HDF5 file of a model."""
    variables = [*model.variables, *(getattr(getattr(model, "optimizer", None), "variables", None) or ())]
    values = sum(math.prod(variable.shape) * (8 if "64" in variable.dtype else 4) for variable in variables)
    check_room(folder, values + _BYTES_PER_VARIABLE * len(variables) + _BYTES_BESIDE)


def _make_parents(place: pathlib.Path) -> None:
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputPathError(
            f"Cannot make the folder of the file: {error.strerror or error}. Give a file in a folder that may be "
            f"written. Received: path={str(place)!r}"
        ) from error


def _is_local(path: Any) -> bool:
    return isinstance(path, (str, os.PathLike)) and "://" not in os.fspath(path)


def _place(path: Any) -> pathlib.Path:
    """Return the path of the file with links resolved, so that a link is not replaced by a file.

    Raises:
        OutputPathError: If the file is write-protected.
    """
    place = pathlib.Path(os.path.realpath(path))
    if place.is_file() and not os.access(place, os.W_OK):
        raise OutputPathError(
            "Cannot write the file: it is write-protected. Give another name, or make it writable. "
            f"Received: path={str(path)!r}"
        )
    return place


def _may_replace(path: Any) -> bool:
    """Ask the user whether to overwrite, as Keras does, with the path as the user gave it."""
    answer = ""
    while answer not in ("y", "n"):
        answer = input(f"[WARNING] {path} already exists - overwrite? [y/n]").strip().lower()
    return answer == "y"
