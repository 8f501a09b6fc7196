"""Saving models so that a file appears whole or not at all: Keras itself writes into the file that is there."""

from __future__ import annotations

import os
import pathlib
from collections.abc import Callable
from typing import Any

from qdq_workbench._files import write_atomically, write_folder
from qdq_workbench.errors import OutputPathError

_HDF5 = (".h5", ".hdf5")


def save_whole(write: Callable[..., Any], path: Any, *, overwrite: bool, zipped: bool | None, **arguments: Any) -> None:
    """Save a model as Keras does, atomically.

    Args:
        write: Keras's `model.save`.
        path: What its caller gave as the path. What Keras refuses, or keeps elsewhere than in files, is Keras's.
        overwrite: Whether a file that is there is replaced without asking.
        zipped: As Keras takes it: False for a folder.
        **arguments: What else it takes.
    """
    as_folder = zipped is not None and not zipped
    fits = not str(path).endswith(".keras") if as_folder else str(path).endswith((".keras", *_HDF5))
    if not fits or not _is_local(path):
        write(path, overwrite=overwrite, zipped=zipped, **arguments)
        return
    place = _place(path)
    if not overwrite and place.exists() and not _may_replace(path):
        return
    if as_folder:
        write_folder(place, lambda temporary: write(temporary, overwrite=True, zipped=zipped, **arguments))
        return
    if place.suffix in _HDF5:
        place.parent.mkdir(parents=True, exist_ok=True)  # as Keras does for this format alone
    write_atomically(place, lambda temporary: write(temporary, overwrite=True, zipped=zipped, **arguments))


def save_weights_whole(write: Callable[..., Any], path: Any, *, overwrite: bool, **arguments: Any) -> None:
    """Save a model's weights as Keras does, atomically where they are one file.

    Args:
        write: Keras's `model.save_weights`.
        path: What its caller gave as the path.
        overwrite: Whether a file that is there is replaced without asking.
        **arguments: What else it takes.
    """
    in_parts = arguments.get("max_shard_size") is not None  # several files, one of which names the others
    if in_parts or not str(path).endswith(".weights.h5") or not _is_local(path):
        write(path, overwrite=overwrite, **arguments)
        return
    place = _place(path)
    if overwrite or not place.exists() or _may_replace(path):
        write_atomically(place, lambda temporary: write(temporary, overwrite=True, **arguments))


def _is_local(path: Any) -> bool:
    return isinstance(path, (str, os.PathLike)) and "://" not in os.fspath(path)


def _place(path: Any) -> pathlib.Path:
    """Return where the file is: behind links, which stay.

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
    """Ask as Keras does, of the path that the user gave."""
    answer = ""
    while answer not in ("y", "n"):
        answer = input(f"[WARNING] {path} already exists - overwrite? [y/n]").strip().lower()
    return answer == "y"
