"""Warnings that point at the user's line, however many functions of this library and of Keras are above it."""

from __future__ import annotations

import contextlib
import inspect
import os
import warnings
from pathlib import Path

import keras

_LIBRARIES = (f"{Path(__file__).parents[2]}{os.sep}", f"{Path(keras.__file__).parent}{os.sep}", contextlib.__file__)


def warn_caller(warning: Warning) -> None:
    """Warn, at the innermost line of the stack that is neither this library's nor Keras's.

    Args:
        warning: The warning.
    """
    frame, level = inspect.currentframe(), 1
    while frame is not None and frame.f_code.co_filename.startswith(_LIBRARIES):
        frame, level = frame.f_back, level + 1
    warnings.warn(warning, stacklevel=level)
