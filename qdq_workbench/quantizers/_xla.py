"""Whether the function being traced will be compiled by XLA; TensorFlow says so by a private name only.

Tried with TensorFlow 2.21. Where the name is missing, the answer is True: the ops chosen for XLA run
anywhere.
"""

from __future__ import annotations

import tensorflow as tf


def traced_for_xla() -> bool:
    """Return whether the current graph, or one around it, belongs to `tf.function(jit_compile=True)`."""
    try:
        from tensorflow.python.ops.control_flow_util import GraphOrParentsInXlaContext
    except ImportError:
        return True
    return not tf.executing_eagerly() and bool(GraphOrParentsInXlaContext(tf.compat.v1.get_default_graph()))
