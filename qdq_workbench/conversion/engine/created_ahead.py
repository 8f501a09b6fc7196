"""Creation of a model's metrics before its first step.

Without a distribution strategy Keras creates them while the first step is traced, and TensorFlow traces a function
that creates variables a second time: a third of the time from `compile` to the first step is spent on a discarded
trace.
"""

from __future__ import annotations

import contextlib
from typing import Any

import keras
import tensorflow as tf


def create_metrics(model: Any, data: Any) -> None:
    """Create the metrics that a model was compiled with, if they are certain to equal those that Keras would create.

    Nothing is known of the batches of an iterator that is not TensorFlow's, such as the generator of `train_on_batch`.
    """
    metrics = getattr(model, "_compile_metrics", None)
    # With several outputs, the metrics depend on how Keras interprets the structure of the labels.
    if metrics is None or metrics.built or len(model.outputs) > 1 or not isinstance(data, tf.data.Iterator):
        return
    with contextlib.suppress(Exception):  # an error of Keras is raised in the step instead
        _, labels, _ = keras.utils.unpack_x_y_sample_weight(data.element_spec)
        if labels is not None:
            metrics.build(keras.tree.map_structure(_symbolic, labels), model.outputs[0])


def _symbolic(labels: Any) -> keras.KerasTensor:
    return keras.KerasTensor(labels.shape, keras.backend.standardize_dtype(labels.dtype))
