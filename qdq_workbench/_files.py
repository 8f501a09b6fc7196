"""Atomic writing of files and folders, and reading of files, with errors that tell the user what to do.

A file is written under the temporary name `.qdq-<computer>-<process>-<letters>.<name>` in the target folder and then
renamed. A temporary file of a killed process is removed by the next process that writes into the folder.
"""

from __future__ import annotations

import contextlib
import functools
import os
import pathlib
import platform
import re
import shutil
import stat
import tempfile
import time
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from qdq_workbench._interrupts import interrupts_held
from qdq_workbench.errors import DataError, FileAccessError, OutputPathError, QDQError

Built = TypeVar("Built")
#: A function that writes a file, or the files of a folder, at the given path.
Writing = Callable[[pathlib.Path], object]

# Bytes: NAME_MAX and PATH_MAX of Linux.
_LONGEST_NAME, _LONGEST_PATH = 255, 4096
_LEFTOVER = re.compile(r"\.qdq-([0-9a-f]{8})-(\d+)-.+")
_KEPT_BYTES = 150  # of the end of a name, in the name of its temporary file
# Seconds. Whether a process of another computer lives cannot be asked, but none writes for a day.
_OLD = 24 * 3600.0


def write_atomically(path: str | pathlib.Path, write: Writing) -> pathlib.Path:
    """Write a file atomically: at any time, even after a crash, the path has the complete old or complete new file.

    `write` writes a temporary file in the same folder, which is flushed to the disk (fsync) and then renamed. Ctrl-C
    is held until then. Temporary files of killed processes are removed by the next call for the folder.

    Args:
        path: The file to write, in an existing folder.
        write: Function that writes the file at the given temporary path, which has the suffix of `path`.

    Returns:
        The path.

    Raises:
        OutputPathError: If the folder does not exist or cannot be written, or the disk is full. An existing file is
            then unchanged.

    Example:
        >>> write_atomically("notes.txt", lambda file: file.write_text("8 bits", encoding="utf-8")).read_text()
        '8 bits'
    """
    return write_together([(path, write)])[0]


@interrupts_held()
def write_together(files: Sequence[tuple[str | pathlib.Path, Writing]]) -> list[pathlib.Path]:
    """Write files that belong together, and return their paths: none is renamed before all are complete.

    Args:
        files: The path of each file and the function that writes it, as for `write_atomically`.

    Raises:
        OutputPathError: As for `write_atomically`; the message names the file.
    """
    targets = [check_place(path) for path, _ in files]
    temporaries: list[pathlib.Path] = []
    path = files[0][0]
    try:
        for target, (given, write) in zip(targets, files, strict=True):
            path = given
            _remove_leftovers(target.parent)
            # Beside the target, because renaming is atomic within one file system only.
            handle, name = tempfile.mkstemp(*_temporary_name(target), dir=target.parent)
            os.close(handle)
            temporaries.append(pathlib.Path(name))
            write(temporaries[-1])
            _put_on_disk(temporaries[-1])
            # mkstemp lets only the owner read; a new file gets the usual mode, an existing one keeps its own.
            temporaries[-1].chmod(stat.S_IMODE(target.stat().st_mode) if target.exists() else 0o666 & ~_umask())
        for temporary, target in zip(temporaries, targets, strict=True):
            path = target
            temporary.replace(target)
        for folder in {target.parent for target in targets}:
            _put_names_on_disk(folder)
    except OSError as error:
        raise OutputPathError(
            f"Cannot write the file: {error.strerror or error}. Check that the folder is writable and the disk has "
            f"room. Received: path={str(path)!r}"
        ) from error
    finally:
        for temporary in temporaries:
            temporary.unlink(missing_ok=True)
    return targets


@interrupts_held()
def write_folder(path: str | pathlib.Path, write: Writing) -> pathlib.Path:
    """Write a folder: `write` fills a temporary folder, which is then renamed, atomically if there is no folder yet.

    The files are moved into an existing folder one by one, each atomically, because it may contain other files.

    Args:
        path: The folder; missing parents are created.
        write: Function that writes into the folder at the given temporary path.

    Raises:
        OutputPathError: If the path is no folder, or the folder cannot be written.
    """
    target = as_path(path, OutputPathError)
    temporary = None
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        _remove_leftovers(target.parent)
        temporary = pathlib.Path(tempfile.mkdtemp(*_temporary_name(target), dir=target.parent))
        write(temporary)
        temporary.chmod(0o777 & ~_umask())
        for file in (inner for inner in temporary.rglob("*") if inner.is_file()):
            _put_on_disk(file)
        # Two processes that move files into an existing folder at the same time would mix them.
        with lock_folder(target.parent):
            _put_folder_in_place(temporary, target)
        _put_names_on_disk(target.parent)
    except OSError as error:
        raise OutputPathError(
            f"Cannot write the folder: {error.strerror or error}. Check that the path is no file, the folder above it "
            f"is writable and the disk has room. Received: path={str(path)!r}"
        ) from error
    finally:
        if temporary is not None:
            shutil.rmtree(temporary, ignore_errors=True)
    return target


def _put_folder_in_place(temporary: pathlib.Path, target: pathlib.Path) -> None:
    if not target.exists():
        temporary.rename(target)
        return
    for file in (inner for inner in sorted(temporary.rglob("*")) if inner.is_file()):
        place = target / file.relative_to(temporary)
        place.parent.mkdir(parents=True, exist_ok=True)
        file.replace(place)


@contextlib.contextmanager
def lock_folder(folder: str | pathlib.Path) -> Iterator[None]:
    """Hold an advisory lock (flock) of a folder in the body; other threads and processes that request it wait.

    The lock ends with the process. On systems and file systems without such locks, such as Windows, nothing is locked.

    Args:
        folder: An existing folder.

    Returns:
        A context manager.

    Raises:
        OutputPathError: If the folder does not exist, or cannot be opened for reading.

    Example:
        >>> with lock_folder("."):
        ...     write_atomically("a.txt", lambda file: file.write_text("1", encoding="utf-8")).name
        'a.txt'
    """
    path = as_path(folder, OutputPathError)
    try:
        import fcntl
    except ImportError:
        yield
        return
    try:
        handle = os.open(path, os.O_RDONLY)
    except OSError as error:
        raise OutputPathError(
            f"Cannot lock the folder: {error.strerror or error}. Give an existing folder that may be read. "
            f"Received: folder={str(folder)!r}"
        ) from error
    try:
        with contextlib.suppress(OSError):
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def _put_on_disk(file: pathlib.Path) -> None:
    """Flush the contents of a file to the disk before its name: else a power failure may leave an empty file."""
    with file.open("r+b") as opened:
        os.fsync(opened.fileno())


def _put_names_on_disk(folder: pathlib.Path) -> None:
    """Flush the names in a folder to the disk, on systems that support it."""
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _temporary_name(target: pathlib.Path) -> tuple[str, str]:
    """Return the end of a temporary file's name, with the suffix of the target, and its beginning."""
    # The cut may fall inside a character, of which the rest is dropped.
    kept = target.name.encode()[-_KEPT_BYTES:].decode(errors="ignore")
    return f".{kept}", f".qdq-{_computer()}-{os.getpid()}-"


def _remove_leftovers(folder: pathlib.Path) -> None:
    """Remove the temporary files and folders of killed processes from a folder, as far as possible."""
    for path in folder.iterdir():
        found = _LEFTOVER.fullmatch(path.name)
        with contextlib.suppress(OSError):
            if found and (_is_dead(found[1], int(found[2])) or time.time() - path.stat().st_mtime > _OLD):
                shutil.rmtree(path) if path.is_dir() else path.unlink()


def _is_dead(computer: str, process: int) -> bool:
    """Return whether a process has certainly ended; False for processes of other computers."""
    if computer != _computer() or os.name != "posix":  # other systems have no signal 0, which only tests
        return False
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return True
    except (OSError, OverflowError):  # another user's process
        return False
    return False


@functools.cache
def _computer() -> str:
    """Return an identifier of this computer, and of this container, for names in a shared folder."""
    try:
        numbers = str(pathlib.Path("/proc/self/ns/pid").readlink())  # every container has its own process numbers
    except OSError:
        numbers = ""
    return f"{zlib.crc32(f'{platform.node()} {numbers}'.encode()):08x}"


def check_place(path: str | pathlib.Path) -> pathlib.Path:
    """Return the path of a file to be written.

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
    """Return the path of a file to be written, with one of the given suffixes.

    Args:
        path: The file to write.
        suffixes: The allowed suffixes, in lower case; the case of the path's suffix is ignored.

    Raises:
        OutputPathError: If the suffix is another one, or as for `check_place`.
    """
    target = check_place(path)
    if target.suffix.lower() not in suffixes:
        raise OutputPathError(f"The file's name must end in {' or '.join(suffixes)}. Received: path={str(path)!r}")
    return target


def write_text(path: str | pathlib.Path, text: str) -> pathlib.Path:
    """Write `text` to a file in UTF-8, atomically; see `write_atomically`."""
    return write_atomically(path, writes_text(text))


def writes_text(text: str) -> Writing:
    """Return a function that writes `text` in UTF-8."""
    return lambda temporary: temporary.write_text(text, encoding="utf-8")


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
    """Rebuild an artefact from the dictionary of its `to_dict`, after checking format and version."""
    expected = f"qdq-workbench/{what.replace(' ', '-')}"
    if not isinstance(data, Mapping) or data.get("format") != expected or data.get("version") != 1:
        raise error(
            f"The dictionary is not a {what} of this version; make one with {made_by}.to_dict(). Received: "
            + (f"format={data.get('format')!r}" if isinstance(data, Mapping) else type(data).__name__)
        )
    try:
        return build(data)
    except QDQError:
        raise  # its message is more specific than the one below
    except (AttributeError, KeyError, TypeError, ValueError) as cause:
        raise error(
            f"The {what} is damaged: a part of it is missing or of the wrong kind. Make it anew with "
            f"{made_by}.to_dict(). Received: {type(cause).__name__}: {cause}"
        ) from cause


def as_path(path: Any, error: type[FileAccessError]) -> pathlib.Path:
    """Return a `pathlib.Path`; raise `error` if the value cannot be the path of a file."""
    is_name = isinstance(path, (str, os.PathLike))
    if (
        not is_name
        or "\0" in str(path)
        or len(os.fsencode(path)) > _LONGEST_PATH
        or any(len(os.fsencode(part)) > _LONGEST_NAME for part in pathlib.Path(path).parts)
    ):
        hint = " A report has the path of its file: pass report.path." if hasattr(path, "path") else ""
        raise error(
            f"A path must be a string or a pathlib.Path of up to {_LONGEST_PATH} bytes; its parts may have up to "
            f"{_LONGEST_NAME} bytes and no null byte.{hint} Received: path={(str(path) if is_name else path)!r:.80}"
        )
    return pathlib.Path(path)


def _umask() -> int:
    # Python returns the umask only when it sets one.
    current = os.umask(0)
    os.umask(current)
    return current
