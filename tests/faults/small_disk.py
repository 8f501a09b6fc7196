"""Disks that are full or read-only, and a limit on the size of files, which every Unix has."""

from __future__ import annotations

import contextlib
import os
import pathlib
import resource
import subprocess
from collections.abc import Iterator

_PAGE = 4096


class SmallDisk:
    """A disk of 32 MB in memory.

    Args:
        folder: Where to mount it; empty.
    """

    def __init__(self, folder: pathlib.Path) -> None:
        self._root = folder
        self.folder = folder / "files"

    def mount(self) -> str:
        """Mount it; return why that cannot be done, or nothing."""
        command = ["mount", "-t", "tmpfs", "-o", "size=32m", "tmpfs", str(self._root)]
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=False)
        except OSError as error:
            return str(error)
        if done.returncode:
            return done.stderr.strip() or f"mount ended with {done.returncode}"
        self.folder.mkdir()
        return ""

    def unmount(self) -> None:
        """Take it away."""
        subprocess.run(["umount", "-l", str(self._root)], check=True)

    @contextlib.contextmanager
    def full(self, free_pages: int = 0) -> Iterator[None]:
        """Leave so many pages of 4 KiB free."""
        found = os.statvfs(self._root)
        with (self._root / "filler").open("wb") as filler:
            os.posix_fallocate(filler.fileno(), 0, found.f_bavail * found.f_frsize - free_pages * _PAGE)
        try:
            yield
        finally:
            (self._root / "filler").unlink()

    @contextlib.contextmanager
    def read_only(self) -> Iterator[None]:
        """Let nothing be written, by the superuser neither."""
        subprocess.run(["mount", "-o", "remount,ro", str(self._root)], check=True)
        try:
            yield
        finally:
            subprocess.run(["mount", "-o", "remount,rw", str(self._root)], check=True)


@contextlib.contextmanager
def short_files(size: int = 0) -> Iterator[None]:
    """Let no file of this process grow beyond so many bytes, as where the disk is full."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
