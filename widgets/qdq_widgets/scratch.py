"""Temporary folders of a bench; where none can be made, the error names the folder and the way out."""

from __future__ import annotations

import contextlib
import pathlib
import shutil
import tempfile
import weakref
from collections.abc import Iterator
from typing import Any

import qdq_workbench as qdq


@contextlib.contextmanager
def scratch_folder() -> Iterator[pathlib.Path]:
    """Yield a temporary folder, which is removed afterwards."""
    folder = _made()
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def scratch_folder_of(owner: Any) -> pathlib.Path:
    """Return a temporary folder that is removed together with its owner."""
    folder = _made()
    weakref.finalize(owner, shutil.rmtree, folder, ignore_errors=True)
    return folder


def _made() -> pathlib.Path:
    try:
        return pathlib.Path(tempfile.mkdtemp(prefix="qdq-"))
    except OSError as error:
        raise qdq.errors.OutputPathError(
            f"Temporary files cannot be written: {error.strerror or error}. Make room there, or name another folder in "
            f"the environment variable TMPDIR. Received: folder={tempfile.tempdir!r}"
        ) from error
