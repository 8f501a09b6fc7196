"""Temporary folders, with a clear error if the disk is full."""

from __future__ import annotations

import contextlib
import errno
import os
import pathlib
import shutil
import tempfile
from collections.abc import Iterator

from qdq_workbench.errors import FileAccessError, OutputPathError

_ROOM = 1 << 16  # bytes; with less free space, that is the probable cause of a failure


@contextlib.contextmanager
def scratch_folder() -> Iterator[pathlib.Path]:
    """Make a temporary folder for the body, which is removed afterwards.

    Returns:
        A context manager that gives its path.

    Raises:
        OutputPathError: If no folder can be made, or the body fails where temporary files have no room left. The
            errors that TensorFlow and ONNX Runtime raise then do not name the reason.

    Example:
        >>> with scratch_folder() as folder:
        ...     folder.joinpath("notes.txt").write_text("1", encoding="utf-8")
        1
        >>> folder.exists()
        False
    """
    try:
        held = tempfile.TemporaryDirectory(prefix="qdq-", ignore_cleanup_errors=True)
    except OSError as error:
        raise _no_scratch(error) from error
    with held as name, scratch_room_named():
        yield pathlib.Path(name)


@contextlib.contextmanager
def scratch_room_named() -> Iterator[None]:
    """Replace an error in the body by OutputPathError if there is no room for temporary files.

    The errors that TensorFlow and ONNX Runtime raise then, or that incomplete files cause, do not name the reason.
    """
    try:
        yield
    except FileAccessError:
        raise  # it names the file
    except Exception as error:
        try:
            check_room(pathlib.Path(tempfile.gettempdir()), _ROOM)
        except OSError as full:
            raise _no_scratch(full) from error
        raise


def _no_scratch(error: OSError) -> OutputPathError:
    what = os.strerror(error.errno) if error.errno else str(error)
    return OutputPathError(
        f"Temporary files cannot be written: {what}. Make room there, or name another folder in the environment "
        f"variable TMPDIR. Received: folder={tempfile.tempdir!r}"
    )


def check_room(folder: pathlib.Path, size: int) -> None:
    """Raise OSError if a folder has no room for `size` bytes, before work that would fail badly on a full disk."""
    if hasattr(os, "posix_fallocate"):  # respects quotas too
        with tempfile.TemporaryFile(dir=folder) as file:
            try:
                os.posix_fallocate(file.fileno(), 0, size)
            except OSError as error:
                if error.errno not in {errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP}:
                    raise OSError(error.errno, f"{os.strerror(error.errno or 0)}, {_room_text(size)}") from error
            else:
                return
    if shutil.disk_usage(folder).free < size:
        raise OSError(errno.ENOSPC, f"{os.strerror(errno.ENOSPC)}, {_room_text(size)}")


def _room_text(size: int) -> str:
    return f"which has to have {size / 2**20:.3g} MiB free"
