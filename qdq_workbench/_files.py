"""Reading and writing small files and the dictionaries in them: atomically, with errors that say what to do."""

from __future__ import annotations

import os
import pathlib
import tempfile
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from qdq_workbench.errors import DataError, FileAccessError, OutputPathError, QDQError

Built = TypeVar("Built")

_LONGEST_NAME, _LONGEST_PATH = 255, 4096


def write_atomically(path: str | pathlib.Path, write: Callable[[pathlib.Path], object]) -> pathlib.Path:
    """Let `write` fill a temporary file beside `path`, then move it there in one step.

    Args:
        path: Where the file shall be.
        write: Function that writes the file at the path that it is given.

    Returns:
        The path.

    Raises:
        OutputPathError: If the folder does not exist or cannot be written, or the disk is full. The earlier file
            of that name, if any, is then unchanged.
    """
    target = check_place(path)
    temporary = None
    try:
        handle, name = tempfile.mkstemp(prefix=f".{target.stem[:40]}.", suffix=target.suffix, dir=target.parent)
        os.close(handle)
        temporary = pathlib.Path(name)
        write(temporary)
        temporary.chmod(0o666 & ~_umask())
        temporary.replace(target)
    except OSError as error:
        raise OutputPathError(
            f"Cannot write the file: {error.strerror or error}. Check that the folder is writable and the disk has "
            f"room. Received: path={str(path)!r}"
        ) from error
    finally:
        if temporary is not None and temporary.exists():
            temporary.unlink()
    return target


def check_place(path: str | pathlib.Path) -> pathlib.Path:
    """Return the path of a file to be written, or refuse what cannot be one.

    Raises:
        OutputPathError: If it is no path, is a folder or a device, or is in a folder that does not exist.
    """
    target = as_path(path, OutputPathError)
    is_special = target.exists() and not target.is_file()  # a device or a pipe would be replaced by a file
    if is_special or not target.parent.is_dir():
        what = "is in a folder that does not exist"
        if is_special:
            what = "is a folder" if target.is_dir() else "is a device or a pipe"
        raise OutputPathError(
            f"Cannot write the file: the path {what}. Give a file name in an existing folder. "
            f"Received: path={str(path)!r}"
        )
    return target


def check_name(path: str | pathlib.Path, suffixes: tuple[str, ...]) -> pathlib.Path:
    """Return the path of a file to be written, or refuse one whose name says another format.

    Args:
        path: Where the file shall be.
        suffixes: How its name may end, in lower case; upper case is fine.

    Raises:
        OutputPathError: If the name ends otherwise, or as for `check_place`.
    """
    target = check_place(path)
    if target.suffix.lower() not in suffixes:
        raise OutputPathError(f"The file's name must end in {' or '.join(suffixes)}. Received: path={str(path)!r}")
    return target


def write_text(path: str | pathlib.Path, text: str) -> pathlib.Path:
    """Write `text` to a file in UTF-8, atomically; see `write_atomically`."""
    return write_atomically(path, lambda temporary: temporary.write_text(text, encoding="utf-8"))


def read_text(path: str | pathlib.Path) -> str:
    """Return the text of a UTF-8 file.

    Raises:
        FileAccessError: If the file cannot be read.
    """
    path = as_path(path, FileAccessError)
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise FileAccessError(
            f"The file is not text in UTF-8: {error.reason} at byte {error.start}. Received: path={str(path)!r}"
        ) from error
    except OSError as error:
        raise FileAccessError(
            f"Cannot read the file: {error.strerror or error}. Received: path={str(path)!r}"
        ) from error


def rebuilt(
    data: Any,
    build: Callable[[Mapping[str, Any]], Built],
    *,
    what: str,
    made_by: str,
    error: type[QDQError] = DataError,
) -> Built:
    """Rebuild an artefact from the dictionary that its `to_dict` made, with errors that say what is wrong with it.

    Args:
        data: The dictionary.
        build: Function that makes the artefact; a part that is missing or of the wrong kind makes it fail.
        what: What it is, such as "sensitivity report"; its format is called `qdq-workbench/sensitivity-report`.
        made_by: The call that makes one, such as "sensitivity(...)".
        error: The error to raise.

    Raises:
        QDQError: If the dictionary is no such artefact, is of another version, or is damaged.
    """
    expected = f"qdq-workbench/{what.replace(' ', '-')}"
    if not isinstance(data, Mapping) or data.get("format") != expected or data.get("version") != 1:
        raise error(
            f"The dictionary is not a {what} of this version; make one with {made_by}.to_dict(). Received: "
            + (f"format={data.get('format')!r}" if isinstance(data, Mapping) else type(data).__name__)
        )
    try:
        return build(data)
    except QDQError:
        raise  # it says more than that something is damaged
    except (AttributeError, KeyError, TypeError, ValueError) as cause:
        raise error(
            f"The {what} is damaged: a part of it is missing or of the wrong kind. Make it anew with "
            f"{made_by}.to_dict(). Received: {type(cause).__name__}: {cause}"
        ) from cause


def as_path(path: Any, error: type[FileAccessError]) -> pathlib.Path:
    """Return a path, or raise `error` where it cannot be the name of a file.

    Args:
        path: What was given as one.
        error: The class of the error.

    Raises:
        FileAccessError: If it is none, of the class `error`.
    """
    fine = isinstance(path, (str, os.PathLike)) and "\0" not in os.fspath(path)
    if (
        not fine
        or len(os.fsencode(path)) > _LONGEST_PATH
        or any(len(os.fsencode(part)) > _LONGEST_NAME for part in pathlib.Path(path).parts)
    ):
        raise error(
            f"A path must be a string or a pathlib.Path of up to {_LONGEST_PATH} bytes; its parts may have up to "
            f"{_LONGEST_NAME} bytes and no null byte. Received: path={str(path)[:80]!r}"
        )
    return pathlib.Path(path)


def _umask() -> int:
    current = os.umask(0)
    os.umask(current)
    return current
