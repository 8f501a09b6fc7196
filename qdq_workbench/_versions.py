"""The versions of installed packages, which files and reports name."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from importlib import metadata


def versions_of(packages: Iterable[str]) -> dict[str, str]:
    """Return the versions of those packages that are installed, in their order."""
    found = {}
    for package in packages:
        # One of the two TensorFlow builds is installed, and a source tree may not be installed at all.
        with contextlib.suppress(metadata.PackageNotFoundError):
            found[package] = metadata.version(package)
    return found
