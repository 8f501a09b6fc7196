"""Runs of a Keras model on several changed copies of the same samples."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from qdq_workbench.conversion.engine.few_calls import computed_values, runs_untraced
from qdq_workbench.conversion.engine.quantized_model import QuantizedModel
from qdq_workbench.verification.differences import apart, mean_of_numbers

Arrays = Sequence[np.ndarray]
_MOST_VALUES = 2**23  # with more values of all tensors together, one call takes as long as several
# Vectorized kernels compute the last values of an array one by one, and may round them in another way.
_SAME = 1e-6


def run_copies(
    q_model: QuantizedModel,
    predict: Callable[[Arrays], Arrays],
    given: Arrays,
    wanted: Arrays,
    copies: Sequence[Arrays],
) -> Sequence[Arrays]:
    """Return the outputs for every copy, from one call if that is faster and the copies do not affect each other.

    `wanted` are the outputs for the samples `given`. A call of a small model takes as long for all copies as for one.
    The samples themselves run along, between two copies: if their outputs change, the model mixes the samples of a
    batch, and every copy runs by itself.
    """
    count = 1 + len(copies)
    if _may_run_together(q_model, given, count):
        # Not first: a model that reads the first sample, or sums up along the batch, would leave them as they are.
        mixed = [copies[0], given, *copies[1:]]
        together = predict([np.concatenate(columns) for columns in zip(*mixed, strict=True)])
        if all(len(values) == count * len(own) for values, own in zip(together, wanted, strict=True)):
            split = [values.reshape(count, -1, *values.shape[1:]) for values in together]
            if all(_holds(values[1], own) for values, own in zip(split, wanted, strict=True)):
                return [[values[place] for values in split] for place in (0, *range(2, count))]
    return [predict(copy) for copy in copies]


def _may_run_together(q_model: QuantizedModel, given: Arrays, count: int) -> bool:
    """Return whether all tensors of a model have an open batch, and few values for that many copies."""
    samples = count * max(len(array) for array in given)
    # Only the shapes of the arrays are read, not the arrays.
    longer = [np.broadcast_to(array[:1], (samples, *array.shape[1:])) for array in given]
    is_open = all(tuple(tensor.shape[:1]) == (None,) for tensor in q_model.plan.graph.tensors.values())
    return is_open and computed_values(q_model, longer) <= _MOST_VALUES and runs_untraced(q_model, longer)


def _holds(found: np.ndarray, own: np.ndarray) -> bool:
    """Return whether outputs beside others are those of the samples alone."""
    return found.shape == own.shape and bool(apart(found, own).mean() <= _SAME * mean_of_numbers(own))
