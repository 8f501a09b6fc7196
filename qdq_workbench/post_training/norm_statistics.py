"""The moving statistics of batch normalizations, recomputed from data.

Training changes the weights, and with them the inputs of a normalization, but its moving statistics lag behind: with
the usual momentum of 0.99 by some 200 steps. Below 8 bits, above all in depthwise networks, the lag costs accuracy,
which recomputed statistics recover. Labels are not needed.

Source: AIMET's `reestimate_bn_stats`, which averages the statistics of batches; here mean and variance are those of
all samples together, and each normalization reads the outputs of those in front of it with their new statistics.
"""

from __future__ import annotations

from typing import Any

import keras
import numpy as np

from qdq_workbench._interrupts import interrupts_held, interrupts_released
from qdq_workbench._progress import ProgressFunction, check_functions, shown_progress
from qdq_workbench.calibration.batches import input_batches
from qdq_workbench.calibration.failures import failures_named
from qdq_workbench.calibration.padding import Floats, rows_of
from qdq_workbench.conversion.engine.folding import read_batch_norm
from qdq_workbench.conversion.engine.traced import traced
from qdq_workbench.errors import DataError
from qdq_workbench.graph_builder import BoundGraph, bind_graph
from qdq_workbench.post_training.rounding.compute import compute


def estimate_statistics(
    model: keras.Model,
    data: Any,
    *,
    batch_size: int = 32,
    progress: ProgressFunction | None = None,
    verbose: bool = True,
) -> int:
    """Set the moving statistics of every batch normalization to the mean and the variance of its inputs on data.

    Use it for a quantized model after quantization-aware training, or after any other change of its weights, before
    the export. As in training, positions that a mask leaves out, such as padding, do not count. Ranges of activations
    behind a normalization are not changed, so calibrate again if the activations changed much. It works on a float
    model too, but changes its function, so judge the result by labels.

    Args:
        model: A quantized model, or a functional or sequential float model; its normalizations change in place. Ctrl-C
            or an error puts all of them back.
        data: Samples as for `calibrate`, like those of the training and some hundreds at least; labels are ignored.
            They are read once per normalization, so give an array or a dataset, not a generator.
        batch_size: How many samples of an array make a batch; the result does not depend on it.
        progress: Called with the number of normalizations done, their total, and the name of the last one.
        verbose: Whether to show a progress bar where there is no `progress`.

    Returns:
        How many normalizations there are.

    Raises:
        DataError: If the data do not fit the model, are exhausted before the last normalization, or if the input of a
            normalization holds NaN or infinity, or is padding alone.
        UnsupportedModelError: If the model's graph cannot be read.
        UnbuiltModelError: If the model does not know its input shape.

    Example:
        >>> image = keras.Input((2,), name="image")
        >>> model = keras.Model(image, keras.layers.BatchNormalization(name="norm")(image))
        >>> estimate_statistics(model, np.array([[1.0, 2.0], [3.0, 2.0]], "float32"), verbose=False)
        1
        >>> np.asarray(model.get_layer("norm").moving_mean).tolist()
        [2.0, 2.0]
    """
    check_functions(progress=progress)
    bound = bind_graph(model)
    norms: dict[str, Any] = {
        call.node.layer: call.operation
        for call in bound.calls
        if isinstance(call.operation, keras.layers.BatchNormalization)
    }
    before = [(v, v.numpy()) for norm in norms.values() for v in (norm.moving_mean, norm.moving_variance)]
    with interrupts_held():
        try:
            with shown_progress(progress, f"Statistics of {model.name}", verbose=verbose) as show:
                for done, (layer, norm) in enumerate(norms.items()):
                    mean, variance = _moments(model, bound, layer, data, batch_size)
                    norm.moving_mean.assign(mean.astype(np.float32))
                    norm.moving_variance.assign(variance.astype(np.float32))
                    with interrupts_released():
                        show(done + 1, len(norms), layer)
        except BaseException:
            for variable, value in before:
                variable.assign(value)
            raise
    return len(norms)


def _moments(model: keras.Model, bound: BoundGraph, layer: str, data: Any, batch_size: int) -> tuple[Floats, Floats]:
    """Return mean and variance per channel of a layer's inputs over data, updated per batch by Chan's formula."""
    own = [place for place, call in enumerate(bound.calls) if call.node.layer == layer]
    calls = bound.calls[: own[-1]]

    def read(inputs: list[Any]) -> list[Any]:
        # Not as a Keras model: the tensors inside a nested model do not depend on the inputs of the outer one.
        known = compute(calls, dict(zip(bound.input_tensors, inputs, strict=True)))
        return [[known[name] for name in bound.calls[place].node.inputs] for place in own]

    run = traced(read, model.inputs)
    norm = read_batch_norm(bound.calls[own[0]].operation)
    count, mean, deviations = np.zeros(()), np.zeros(()), np.zeros(())
    for inputs in input_batches(model, data, batch_size):
        with failures_named(inputs):
            found = run(list(inputs))
        for tensors in found:
            rows, valid = rows_of(*map(np.asarray, tensors), axis=norm.axis)
            if not np.isfinite(rows).all():
                raise DataError(
                    "A normalization that reads NaN or infinity has no mean; drop such samples, or look for the layer "
                    f"that makes them. Received: {int((~np.isfinite(rows)).sum())} such values in front of {layer!r}"
                )
            number = valid.sum(axis=0)
            own_mean = rows.sum(axis=0) / np.maximum(number, 1)
            shift, total = own_mean - mean, count + number
            share = number / np.maximum(total, 1)
            deviations = deviations + np.where(valid, np.square(rows - own_mean), 0.0).sum(axis=0)
            deviations = deviations + np.square(shift) * count * share
            mean = mean + shift * share
            count = total
    if not np.any(count):
        raise DataError(
            "A normalization has no statistics where its mask leaves out all values; give samples that are not padding "
            f"alone. Received: no value in front of {layer!r}"
        )
    # A channel without a value keeps its statistics: along the axis of time, one may be padding in every sample.
    variance = deviations / np.maximum(count, 1)
    return np.where(count, mean, norm.mean), np.where(count, variance, norm.variance)
