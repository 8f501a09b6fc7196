"""The named errors of QDQ Workbench.

Every message follows one shape: what happened, what was expected, how to fix it, and what was received.
All errors derive from `QDQError`, so one `except` clause catches whatever this library refuses to do. A warning that a
program may want to switch off has a class here too.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class QDQError(Exception):
    """Base class of every error that this library raises on purpose.

    Example:
        >>> from qdq_workbench.targets import get_target
        >>> try:
        ...     get_target("tensorrtt")
        ... except QDQError as error:
        ...     print(type(error).__name__)
        TargetError
    """


class SpecError(QDQError, ValueError):
    """A quantization specification that cannot be applied to the model."""


class PlacementConflictError(SpecError):
    """Two custom QDQ insertion cases that decide differently about one layer."""


class ModeError(SpecError):
    """A quantization mode other than "full" or "partial"."""


class TargetError(QDQError, ValueError):
    """A target that is not one of the known inference runtimes."""


class UnsupportedModelError(QDQError, TypeError):
    """A model whose graph cannot be read: subclassed, of Keras 2, or of another Keras backend."""


class UnbuiltModelError(QDQError, ValueError):
    """A model without a graph because its input shape is not known yet."""


class NotQuantizedError(QDQError, TypeError):
    """A float model where a model made by `quantize_model` is needed."""


class UncalibratedError(QDQError, RuntimeError):
    """Activation quantizers that have no range yet."""


class DataError(QDQError, ValueError):
    """Data, or a range made from data, that cannot be used: NaN, infinity, wrong shape, nothing at all."""


class QuantizerError(QDQError, ValueError):
    """Settings of a quantizer that contradict each other or leave the supported range."""


class CheckpointError(QDQError, ValueError):
    """A checkpoint that belongs to another model, other data or other settings than the run that would continue it."""


class WorkerError(QDQError, RuntimeError):
    """A worker process of a sweep that ended before its work did, for lack of memory in most cases."""


class FileAccessError(QDQError, OSError):
    """A file that cannot be read."""


class OutputPathError(FileAccessError):
    """A file that cannot be written where the caller asked for it."""


class ExportError(QDQError, RuntimeError):
    """A model that could not be turned into a clean QDQ ONNX file."""


class VerificationError(QDQError, RuntimeError):
    """An exported file that does not do what its plan says."""


class UnverifiableFileError(VerificationError, FileAccessError):
    """A file that cannot be verified at all: no ONNX model, damaged, or without a plan where no model is given."""


class LowCoverageWarning(UserWarning):
    """Most of a model stays in float, because planning does not know its layers."""


class UnsettledStatisticsWarning(UserWarning):
    """Batch normalizations whose moving statistics are far from the data, so that training meets other ranges."""


class DataScaleWarning(UserWarning):
    """Data that are many times larger, or smaller, than those that a model was calibrated on."""


def nearest_names(name: str, known: Iterable[str], count: int = 3) -> str:
    """Return the known names that resemble `name`, as a phrase for an error message.

    Args:
        name: The name that was not found.
        known: The names that exist.
        count: How many names to show at most.

    Returns:
        A phrase such as `Did you mean 'conv_1' or 'conv_2'?`; the first known names where none is near;
        a statement that there are none where `known` is empty.

    Example:
        >>> nearest_names("conv1", ["conv_1", "dense"])
        "Did you mean 'conv_1'?"
    """
    names = sorted(set(known))
    if not names:
        return "There are no names to choose from."
    lowered = {candidate.lower(): candidate for candidate in names}
    wanted = str(name).lower()  # what was given may be no text at all
    near = [lowered[match] for match in difflib.get_close_matches(wanted, list(lowered), n=count, cutoff=0.5)]
    if near:
        return "Did you mean " + " or ".join(repr(candidate) for candidate in near) + "?"
    shown = ", ".join(repr(candidate) for candidate in names[: 2 * count])
    return f"Known names: {shown}{', ...' if len(names) > 2 * count else ''}."


def first_line(error: BaseException) -> str:
    r"""Return the first line of another library's message, for one of ours that quotes it.

    Args:
        error: What was raised; some libraries print a whole call stack in its message.

    Returns:
        At most 300 characters without the full stop; the class's name where the message is empty.

    Example:
        >>> first_line(ValueError("Too many axes.\nCall stack: ..."))
        'Too many axes'
    """
    lines = (line.strip() for line in str(error).splitlines())
    return next((line for line in lines if line), type(error).__name__)[:300].rstrip(".")
