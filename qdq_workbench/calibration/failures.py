"""TensorFlow's failures on a batch as errors about the data or the model, instead of a traceback of its graph."""

from __future__ import annotations

import contextlib
import itertools
import re
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from qdq_workbench.errors import DataError, UnsupportedModelError, first_line

# Eagerly TensorFlow writes "{{function_node ...}} cause [Op:Name]". In an error of a graph the cause is the line above
# one that starts with "[[{{node".
_OUTSIDE_OF_GRAPHS = re.compile(r"\}\} (?P<cause>.+) \[Op:\w+\]")


@contextlib.contextmanager
def failures_named(inputs: Sequence[Any]) -> Iterator[None]:
    """Convert TensorFlow's errors in the body, which runs a model on these inputs.

    Raises:
        DataError: If an operation rejects the values, such as a token outside the table of an Embedding.
        UnsupportedModelError: If TensorFlow has no kernel for an operation on this processor.
    """
    try:
        yield
    except tf.errors.UnimplementedError as error:
        raise UnsupportedModelError(
            "TensorFlow has no kernel on this processor for an operation of the model, which therefore does not run in "
            "float either. For convolutions and poolings with channels first, set TF_ENABLE_ONEDNN_OPTS=1 in the "
            "environment before TensorFlow is imported, or build the model with channels last. "
            f"Received: {_cause(error)}"
        ) from error
    except tf.errors.InvalidArgumentError as error:
        shown = "; ".join(f"{np.shape(x)} from {np.min(x)} to {np.max(x)}" for x in inputs)
        raise DataError(
            "The model could not compute this batch: an operation refuses its values. Expected such values as the "
            "model was trained on; the tokens of an Embedding with input_dim=n are 0 to n - 1. "
            f"TensorFlow says: {_cause(error)}. Received: a batch of shape and values {shown}"
        ) from error


def _cause(error: Exception) -> str:
    """Return the line of the message with the cause: the one before the name of the operation."""
    by_operation = _OUTSIDE_OF_GRAPHS.search(str(error))
    if by_operation:
        return by_operation["cause"][:300]
    lines = [line.strip() for line in str(error).splitlines()]
    found = (line for line, below in itertools.pairwise(lines) if line and below.startswith("[["))
    return next(found, first_line(error))[:300]
