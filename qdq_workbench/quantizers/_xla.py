"""What is traced otherwise in a function that XLA will compile.

Which functions these are is known from a private name of TensorFlow 2.21. Without that name every function counts as
one, because the ops chosen for XLA run everywhere.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf


def traced_for_xla() -> bool:
    """Return whether the current graph, or one around it, belongs to `tf.function(jit_compile=True)`."""
    try:
        from tensorflow.python.ops.control_flow_util import GraphOrParentsInXlaContext
    except ImportError:
        return True
    return not tf.executing_eagerly() and bool(GraphOrParentsInXlaContext(tf.compat.v1.get_default_graph()))


def chosen(condition: Any, first: Callable[[], Any], second: Callable[[], Any], *, xla: bool) -> Any:
    """Return the tensors of `first` if a scalar bool tensor is true, else those of `second`, in the same structure.

    For XLA both are computed and one is selected: XLA does not fuse across a condition, and on a GPU the host waits for
    each (benchmarks/results/2026-11-27-gpu.md). The callers define their gradients themselves: that of a select is NaN
    where the result that was not selected is not finite.
    """
    if not xla:
        return tf.cond(condition, first, second)
    return tf.nest.map_structure(lambda one, other: tf.where(condition, one, other), first(), second())
