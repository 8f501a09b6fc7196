"""Ranges over all replicas of a distribution strategy: each gets a part of the batch, but all must have one range.

Strategies reduce by sums and means only. The extremes are therefore computed from a sum: each replica writes its value
to its own slot of a vector, so the sum over the replicas holds the values of all, and each replica reduces it.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf


def count() -> int:
    """Return the number of replicas that run this call in parallel; 1 outside of a strategy's replicas."""
    context = tf.distribute.get_replica_context()
    return 1 if context is None else int(context.num_replicas_in_sync)


def extremes(low: Any, high: Any) -> tuple[Any, Any]:
    """Return the lowest and highest values over all replicas; one without values gives +infinity and -infinity."""
    context = tf.distribute.get_replica_context()
    slots = tf.one_hot(context.replica_id_in_sync_group, count(), on_value=True, off_value=False, dtype=tf.bool)
    # -high, so that one minimum reduces both ends.
    ends = tf.stack([low, -high])[tf.newaxis]
    own = tf.reshape(slots, [-1] + [1] * (ends.shape.rank - 1))
    # `where`, not a product: infinity * 0 is NaN.
    every = context.all_reduce(tf.distribute.ReduceOp.SUM, tf.where(own, ends, 0.0))
    lowest = tf.reduce_min(every, axis=0)
    return lowest[0], -lowest[1]


def mean(value: Any) -> Any:
    """Return the mean of a float32 tensor over all replicas."""
    return tf.distribute.get_replica_context().all_reduce(tf.distribute.ReduceOp.MEAN, value)
