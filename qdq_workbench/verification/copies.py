"""Runs of a Keras model on several changed copies of the same samples."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from qdq_workbench.conversion.engine.few_calls import runs_untraced
from qdq_workbench.conversion.engine.quantized_model import QuantizedModel

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

    A call of a small model takes as long for all copies as for one. The samples themselves run along: if their outputs
    change, the model mixes the samples of a batch, and every copy runs by itself.

    Args:
        q_model: The model.
        predict: Returns its outputs for one array per input.
        given: The samples, one array per input.
        wanted: The outputs for them.
        copies: Changed copies of the samples.
    """
    count = 1 + len(copies)
    if _may_run_together(q_model, given, count):
        together = predict([np.concatenate(columns) for columns in zip(given, *copies, strict=True)])
        if all(_holds(*both, count) for both in zip(together, wanted, strict=True)):
            split = [values.reshape(count, *own.shape) for values, own in zip(together, wanted, strict=True)]
            return [list(outputs) for outputs in zip(*split, strict=True)][1:]
    return [predict(copy) for copy in copies]


def _may_run_together(q_model: QuantizedModel, given: Arrays, count: int) -> bool:
    """Return whether all tensors of a model have an open batch, and few values for that many copies."""
    shapes = [tuple(tensor.shape) for tensor in q_model.plan.graph.tensors.values()]
    samples = count * max(len(array) for array in given)
    values = samples * sum(math.prod(size or 1 for size in shape[1:]) for shape in shapes)
    # Only the shapes of the arrays are read, not the arrays.
    longer = [np.broadcast_to(array[:1], (samples, *array.shape[1:])) for array in given]
    return all(shape[:1] == (None,) for shape in shapes) and values <= _MOST_VALUES and runs_untraced(q_model, longer)


def _holds(together: np.ndarray, own: np.ndarray, count: int) -> bool:
    """Return whether the first of the outputs of several copies are those of the first copy alone."""
    if together.shape != (count * len(own), *own.shape[1:]):
        return False
    apart = np.abs(together[: len(own)] - own).mean()
    return bool(apart <= _SAME * np.abs(own).mean())
