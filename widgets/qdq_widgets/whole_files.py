"""Files of the bench's own that appear whole or not at all; models and exports are written so by `qdq_workbench`."""

from __future__ import annotations

import contextlib
import os
import pathlib
import tempfile
from collections.abc import Iterator

from qdq_widgets.errors import BenchError


def write_page(page: str, path: pathlib.Path) -> pathlib.Path:
    """Write a page or a picture.

    Args:
        page: The text.
        path: The file.

    Returns:
        The path.

    Raises:
        BenchError: If it cannot be written; what is there is then unchanged.
    """
    temporary = None
    try:
        handle, name = tempfile.mkstemp(prefix=f".{path.stem}.", suffix=".html", dir=path.parent)
        temporary = pathlib.Path(name)
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(page)
        put_on_disk(temporary)
        temporary.chmod(0o644)
        temporary.replace(path)
        put_names_on_disk(path.parent)
    except OSError as error:
        raise BenchError(
            f"The page cannot be written: {error.strerror or error}. Give a file in an existing folder that may be "
            f"written, on a disk that has room. Received: path={str(path)!r}"
        ) from error
    finally:
        if temporary is not None:
            temporary.unlink(missing_ok=True)
    return path


@contextlib.contextmanager
def one_at_a_time(folder: pathlib.Path) -> Iterator[None]:
    """Let two kernels that write into a folder do so one after the other, where the system can.

    Args:
        folder: The folder. The lock on it ends with the process that has it.
    """
    try:
        import fcntl
    except ImportError:
        yield
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        with contextlib.suppress(OSError):
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def put_on_disk(file: pathlib.Path) -> None:
    """Have the contents of a file written before its name is: else a power failure may leave the name alone.

    Args:
        file: The file.

    Raises:
        OSError: If they cannot be.
    """
    with file.open("r+b") as opened:
        os.fsync(opened.fileno())


def put_names_on_disk(folder: pathlib.Path) -> None:
    """Have the names in a folder written, where a system offers that.

    Args:
        folder: The folder.
    """
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
