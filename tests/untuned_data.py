"""Datasets without TensorFlow's tuning, whose thread the end of an iterator waits for.

The thread wakes after 10, 30, 70, 150, 310, 630 ... milliseconds, so that every `fit`, `predict` and `evaluate` of the
tests would sleep until then: 6 seconds of 150 (TensorFlow 2.21).
"""

import sys


class UntunedData:
    """Switches the tuning off for all datasets that are iterated over eagerly."""

    def pytest_collection_finish(self):
        dataset_ops = sys.modules.get("tensorflow.python.data.ops.dataset_ops")
        if dataset_ops is None:
            return
        tf = sys.modules["tensorflow"]
        options = tf.data.Options()
        options.autotune.enabled = False
        begin = dataset_ops.DatasetV2.__iter__

        def untuned(self):
            return begin(self.with_options(options) if tf.executing_eagerly() else self)

        dataset_ops.DatasetV2.__iter__ = untuned
