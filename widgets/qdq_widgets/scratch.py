"""A temporary folder that is removed together with its owner."""

from __future__ import annotations

import contextlib
import pathlib
import weakref
from typing import Any

import qdq_workbench as qdq


def scratch_folder_of(owner: Any) -> pathlib.Path:
    """Return a temporary folder that is removed together with its owner."""
    held = contextlib.ExitStack()
    folder = held.enter_context(qdq.files.scratch_folder())
    weakref.finalize(owner, held.close)
    return folder
