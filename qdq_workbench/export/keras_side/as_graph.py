"""Tracing of a function of TensorFlow, with a named error where a layer computes in eager mode alone."""

from __future__ import annotations

from typing import Any

from qdq_workbench.errors import ExportError, QDQError, first_line


def as_graph(function: Any, **signature: Any) -> Any:
    """Return the concrete function of a `tf.function`; raise ExportError if the code of a layer cannot be traced."""
    try:
        return function.get_concrete_function(**signature)
    except QDQError:
        raise
    except Exception as error:
        raise ExportError(
            "A layer of the model computes in eager mode alone; files, as `predict` and `fit`, need it as a graph of "
            "TensorFlow. Let its `call` use functions of keras.ops in place of `if`, `range` or `int` of a tensor's "
            f"values, or give the inputs fixed sizes if it needs these. Received: {type(error).__name__}: "
            f"{first_line(error)}"
        ) from error
