"""The named errors of QDQ Workbench.

Every message states what happened, what was expected, how to fix it, and what was received. All errors derive from
`QDQError`, so one `except` clause catches every error that this library raises on purpose. Warnings that a program may
want to switch off have their classes here too.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence


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
    """A float model was given instead of a model made by `quantize_model`."""


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
    """An exported file that differs from its plan or from its Keras model."""


class UnverifiableFileError(VerificationError, FileAccessError):
    """A file that cannot be verified: no ONNX model, damaged, or without a plan while no model is given."""


class StoppedError(QDQError, RuntimeError):
    """Work that was stopped by the function given to `files.stoppable`."""


class LowCoverageWarning(UserWarning):
    """A model that mostly stays in float, because the planner does not support its layers."""


class UnsettledStatisticsWarning(UserWarning):
    """Batch normalizations whose moving statistics are far from the data, so that ranges in training differ."""


class DataScaleWarning(UserWarning):
    """Data that are many times larger or smaller than the calibrated ranges of a model's inputs."""


def nearest_names(name: str, known: Iterable[str], count: int = 3) -> str:
    """Return the known names that resemble `name`, as a phrase for an error message.

    Args:
        name: The name that was not found.
        known: The names that exist.
        count: The maximum number of similar names to show.

    Returns:
        A phrase such as `Did you mean 'conv_1' or 'conv_2'?`; the first known names if none is similar; or that there
        are none if `known` is empty.

    Example:
        >>> nearest_names("conv1", ["conv_1", "dense"])
        "Did you mean 'conv_1'?"
    """
    names = sorted(set(known))
    if not names:
        return "There are no names to choose from."
    lowered = {candidate.lower(): candidate for candidate in names}
    wanted = str(name).lower()  # the given name may not be a string
    near = [lowered[match] for match in difflib.get_close_matches(wanted, list(lowered), n=count, cutoff=0.5)]
    if near:
        return "Did you mean " + " or ".join(repr(candidate) for candidate in near) + "?"
    return f"Known names: {first_names(names, 2 * count)}."


def first_names(names: Sequence[str], count: int = 3) -> str:
    """Return the first of some names, as a part of a sentence.

    Args:
        names: The names in order.
        count: The maximum number of names to show.

    Returns:
        A phrase such as `'conv_1', 'conv_2', 'dense', ...`; the dots stand for further names.

    Example:
        >>> first_names(["conv_1", "conv_2"], 1)
        "'conv_1', ..."
    """
    return ", ".join(map(repr, names[:count])) + (", ..." if len(names) > count else "")


def first_line(error: BaseException) -> str:
    r"""Return the first line of another library's error message, for quoting it in a message.

    Args:
        error: The error; some libraries include a whole call stack in the message.

    Returns:
        At most 300 characters without the full stop; the name of the class if the message is empty.

    Example:
        >>> first_line(ValueError("Too many axes.\nCall stack: ..."))
        'Too many axes'
    """
    lines = (line.strip() for line in str(error).splitlines())
    return next((line for line in lines if line), type(error).__name__)[:300].rstrip(".")
