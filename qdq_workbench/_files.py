"""Reading and writing files and the dictionaries in them: atomically, with errors that say what to do.

What is being written is called `.qdq-<computer>-<process>-<letters>.<name>` beside its place until it is whole. Of a
process that was killed such a file stays; whoever writes into the folder next removes it.
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
#: What writes a file at the path that it is given.
Writing = Callable[[pathlib.Path], object]

_LONGEST_NAME, _LONGEST_PATH = 255, 4096
_LEFTOVER = re.compile(r"\.qdq-([0-9a-f]{8})-(\d+)-.+")
_KEPT_BYTES = 150  # of a name, in that of its temporary file
_OLD = 24 * 3600.0


def write_atomically(path: str | pathlib.Path, write: Writing) -> pathlib.Path:
    """Write a file atomically: at any moment, also after a crash, it is the whole earlier file or the whole new one.

    `write` fills a temporary file beside `path`, which is flushed to the disk (fsync) and then renamed. Ctrl-C waits
    until that is done. What a killed process left behind is removed by the next that writes into the folder.

    Args:
        path: Where the file shall be, in an existing folder.
        write: Function that writes the file at the path that it is given, whose suffix is that of `path`.

    Returns:
        The path.

    Raises:
        OutputPathError: If the folder does not exist or cannot be written, or the disk is full. The earlier file
            of that name, if any, is then unchanged.

    Example:
        >>> write_atomically("notes.txt", lambda file: file.write_text("8 bits", encoding="utf-8")).read_text()
        '8 bits'
    """
    return write_together([(path, write)])[0]


@interrupts_held()
def write_together(files: Sequence[tuple[str | pathlib.Path, Writing]]) -> list[pathlib.Path]:
    """Write files that belong together: none takes its place before all are whole.

    Args:
        files: The path of each and the function that writes it, as for `write_atomically`.

    Returns:
        The paths.

    Raises:
        OutputPathError: As `write_atomically`, which file it names.
    """
    targets = [check_place(path) for path, _ in files]
    temporaries: list[pathlib.Path] = []
    path = files[0][0]
    try:
        for target, (given, write) in zip(targets, files, strict=True):
            path = given
            _remove_leftovers(target.parent)
            handle, name = tempfile.mkstemp(*_temporary_name(target), dir=target.parent)
            os.close(handle)
            temporaries.append(pathlib.Path(name))
            write(temporaries[-1])
            _put_on_disk(temporaries[-1])
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
    """Let `write` fill a temporary folder beside `path`, then move it there: in one step where there is none yet.

    Into a folder that exists the files are moved one by one, each in one step, because there may be others in it.

    Args:
        path: Where the folder shall be; missing ones above it are made.
        write: Function that writes into the folder at the path that it is given.

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
    """Hold an advisory lock (flock) of a folder inside: who also asks for it waits, in this process or in another.

    The lock ends with the process. Where the system or the file system has none, as on Windows, nothing is locked.

    Args:
        folder: An existing folder.

    Returns:
        A context manager.

    Raises:
        OutputPathError: If the folder does not exist or cannot be opened.

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
    """Have the contents of a file written before its name is: else a power failure may leave the name alone."""
    with file.open("r+b") as opened:
        os.fsync(opened.fileno())


def _put_names_on_disk(folder: pathlib.Path) -> None:
    """Have the names in a folder written, where a system offers that."""
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _temporary_name(target: pathlib.Path) -> tuple[str, str]:
    """Return what a temporary file's name ends with, which says the format as that of the place, and begins with."""
    kept = target.name.encode()[-_KEPT_BYTES:].decode(errors="ignore")
    return f".{kept}", f".qdq-{_computer()}-{os.getpid()}-"


def _remove_leftovers(folder: pathlib.Path) -> None:
    """Remove what killed processes left in a folder; what cannot be removed stays."""
    for path in folder.iterdir():
        found = _LEFTOVER.fullmatch(path.name)
        with contextlib.suppress(OSError):
            if found and (_is_dead(found[1], int(found[2])) or time.time() - path.stat().st_mtime > _OLD):
                shutil.rmtree(path) if path.is_dir() else path.unlink()


def _is_dead(computer: str, process: int) -> bool:
    """Return whether a process is known not to run any more: of others than this computer's nothing is known."""
    if computer != _computer() or os.name != "posix":  # elsewhere there is no signal that only asks
        return False
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return True
    except (OSError, OverflowError):  # it is somebody else's
        return False
    return False


@functools.cache
def _computer() -> str:
    """Return what tells this computer, and this container, from others that write to the same folder."""
    try:
        numbers = str(pathlib.Path("/proc/self/ns/pid").readlink())  # containers count their processes by themselves
    except OSError:
        numbers = ""
    return f"{zlib.crc32(f'{platform.node()} {numbers}'.encode()):08x}"


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
    is_name = isinstance(path, (str, os.PathLike))
    if (
        not is_name
        or "\0" in str(path)
        or len(os.fsencode(path)) > _LONGEST_PATH
        or any(len(os.fsencode(part)) > _LONGEST_NAME for part in pathlib.Path(path).parts)
    ):
        raise error(
            f"A path must be a string or a pathlib.Path of up to {_LONGEST_PATH} bytes; its parts may have up to "
            f"{_LONGEST_NAME} bytes and no null byte. Received: path={(str(path) if is_name else path)!r:.80}"
        )
    return pathlib.Path(path)


def _umask() -> int:
    current = os.umask(0)
    os.umask(current)
    return current
