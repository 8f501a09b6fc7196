"""Warnings that point at the user's line, however many functions of this library and of Keras are above it."""

from __future__ import annotations

import inspect
import os
import types
import warnings
from pathlib import Path

_HERE = f"{Path(__file__).parent}{os.sep}"
#: Context managers and decorators of this library are called through `contextlib`, copies made by `dataclasses`.
_NOT_THE_USERS = {__name__.partition(".")[0], "keras", "contextlib", "dataclasses"}


def warn_caller(warning: Warning) -> None:
    """Warn, at the innermost line of the stack that is neither this library's nor Keras's.

    Args:
        warning: The warning.
    """
    frame, level = inspect.currentframe(), 1
    while frame is not None and not _is_of_the_user(frame):
        frame, level = frame.f_back, level + 1
    warnings.warn(warning, stacklevel=level)


def _is_of_the_user(frame: types.FrameType) -> bool:
    """Return whether a function is the user's; generated code, as of a dataclass, has no file, but a module."""
    module = str(frame.f_globals.get("__name__", ""))
    return module.partition(".")[0] not in _NOT_THE_USERS and not frame.f_code.co_filename.startswith(_HERE)
