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
import numpy.typing as npt

from qdq_workbench._interrupts import interrupts_held, interrupts_released
from qdq_workbench._progress import ProgressFunction, check_functions, shown_progress
from qdq_workbench.calibration.batches import input_batches
from qdq_workbench.conversion.engine.deep_models import functional_model
from qdq_workbench.conversion.engine.traced import traced
from qdq_workbench.errors import DataError
from qdq_workbench.graph_builder import bind_graph

Floats = npt.NDArray[np.float64]


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
    the export. Ranges of activations behind a normalization are not changed, so calibrate again if the activations
    changed much. It works on a float model too, but changes its function, so judge the result by labels.

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
            normalization holds NaN or infinity.
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
    reads: dict[str, tuple[Any, list[Any]]] = {}
    for call in bound.calls:
        if isinstance(call.operation, keras.layers.BatchNormalization):
            reads.setdefault(call.node.layer, (call.operation, []))[1].append(bound.tensors[call.node.inputs[0]])
    before = [(v, v.numpy()) for norm, _ in reads.values() for v in (norm.moving_mean, norm.moving_variance)]
    with interrupts_held():
        try:
            with shown_progress(progress, f"Statistics of {model.name}", verbose=verbose) as show:
                for done, (layer, (norm, tensors)) in enumerate(reads.items()):
                    mean, variance = _moments(model, layer, norm, tensors, data, batch_size)
                    norm.moving_mean.assign(mean.astype(np.float32))
                    norm.moving_variance.assign(variance.astype(np.float32))
                    with interrupts_released():
                        show(done + 1, len(reads), layer)
        except BaseException:
            for variable, value in before:
                variable.assign(value)
            raise
    return len(reads)


def _moments(
    model: keras.Model, layer: str, norm: Any, tensors: list[Any], data: Any, batch_size: int
) -> tuple[Floats, Floats]:
    """Return mean and variance per channel of some tensors over data, updated per batch by Chan's formula."""
    axis = norm.axis[0] if isinstance(norm.axis, (list, tuple)) else norm.axis
    function = functional_model(model.inputs, tensors, name="norm_inputs")
    run = traced(lambda inputs: keras.tree.flatten(function(inputs, training=False)), model.inputs)
    count, mean, deviations = 0, np.zeros(()), np.zeros(())
    for inputs in input_batches(model, data, batch_size):
        for value in run(list(inputs)):
            rows = np.moveaxis(np.asarray(value), axis, -1).reshape(-1, value.shape[axis]).astype(np.float64)
            if not np.isfinite(rows).all():
                raise DataError(
                    "A normalization that reads NaN or infinity has no mean; drop such samples, or look for the layer "
                    f"that makes them. Received: {int((~np.isfinite(rows)).sum())} such values in front of {layer!r}"
                )
            shift, total = rows.mean(axis=0) - mean, count + len(rows)
            deviations = deviations + rows.var(axis=0) * len(rows) + np.square(shift) * count * len(rows) / total
            mean = mean + shift * len(rows) / total
            count = total
    return mean, deviations / count
