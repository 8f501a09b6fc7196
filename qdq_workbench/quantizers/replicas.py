"""Ranges over all replicas of a distribution strategy: each sees its part of the batch, all must keep one range.

Strategies reduce by sums and means only. The lowest and highest values come from a sum all the same: each replica puts
its value in a slot of its own, so the sum over the replicas holds every value once, and all take the extremes of it.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf


def count() -> int:
    """Return on how many replicas this very call runs side by side; 1 outside of a strategy's replicas."""
    context = tf.distribute.get_replica_context()
    return 1 if context is None else int(context.num_replicas_in_sync)


def extremes(low: Any, high: Any) -> tuple[Any, Any]:
    """Return the lowest and highest values over all replicas. A replica with none gives +infinity and -infinity.

    Args:
        low: Lowest value of this replica: a number, or shape `(C,)`.
        high: Highest value, of the same shape.
    """
    context = tf.distribute.get_replica_context()
    slots = tf.one_hot(context.replica_id_in_sync_group, count(), on_value=True, off_value=False, dtype=tf.bool)
    ends = tf.stack([low, -high])[tf.newaxis]
    own = tf.reshape(slots, [-1] + [1] * (ends.shape.rank - 1))
    every = context.all_reduce(tf.distribute.ReduceOp.SUM, tf.where(own, ends, 0.0))
    lowest = tf.reduce_min(every, axis=0)
    return lowest[0], -lowest[1]


def mean(value: Any) -> Any:
    """Return the mean over all replicas.

    Args:
        value: A float32 tensor.
    """
    return tf.distribute.get_replica_context().all_reduce(tf.distribute.ReduceOp.MEAN, value)
