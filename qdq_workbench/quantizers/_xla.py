"""Whether the function being traced will be compiled by XLA, from a private name of TensorFlow 2.21.

Without that name the answer is True, because the ops chosen for XLA run everywhere.
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
