"""`tensor_values`, `weight_values`: the values of activations (by batch, float and quantized) and of weights."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from qdq_workbench._progress import check_count
from qdq_workbench.calibration.batches import input_batches
from qdq_workbench.calibration.failures import failures_named
from qdq_workbench.calibration.padding import mask_of
from qdq_workbench.conversion.engine.deep_models import functional_model
from qdq_workbench.conversion.engine.float_view import float_view
from qdq_workbench.conversion.engine.quantized_model import QuantizedModel, check_quantized
from qdq_workbench.conversion.engine.settled_functions import switches_kept
from qdq_workbench.conversion.engine.traced import traced
from qdq_workbench.errors import SpecError, nearest_names
from qdq_workbench.graph_builder import layer_weights


@dataclasses.dataclass(frozen=True)
class TensorValues:
    """Activation tensors of one batch, by name.

    Args:
        float: The values in the float model.
        quantized: The values in the quantized model before the tensor's own pair, with the error of all pairs and
            weights before it. None unless `compare` was set.
        masks: For tensors with a mask only, such as padded sequences: False at positions that do not count. Its axes
            are the first ones of the values, which hold all positions, as the exported file computes them.
    """

    float: Mapping[str, np.ndarray]
    quantized: Mapping[str, np.ndarray] | None = None
    masks: Mapping[str, np.ndarray] = dataclasses.field(default_factory=dict)


def tensor_values(
    q_model: QuantizedModel,
    data: Any,
    tensors: Iterable[str] | None = None,
    *,
    compare: bool = False,
    steps: int | None = None,
    batch_size: int = 32,
) -> Iterator[TensorValues]:
    """Yield the values of activation tensors, batch by batch, for histograms and error metrics.

    Args:
        q_model: A model made by `quantize_model`; it does not change.
        data: As for `calibrate`.
        tensors: Names of float tensors in the model's graph, quantized or not; None for all.
        compare: Whether to compute the values in the quantized model as well; it must be calibrated.
        steps: The maximum number of batches, at least 1; None for all.
        batch_size: The batch size for data given as arrays.

    Returns:
        One `TensorValues` per batch.

    Raises:
        SpecError: If there is no such float tensor; the message shows the nearest names.
        DataError: If there is no data, a batch has the wrong shape, or `steps` is out of its range.
        NotQuantizedError: If the model was not made by `quantize_model`.

    Example:
        >>> from qdq_workbench import quantize_model
        >>> image = keras.Input((2,), name="image")
        >>> q_model = quantize_model(keras.Model(image, keras.layers.ReLU(name="relu")(image)))
        >>> [batch.float["relu"].tolist() for batch in tensor_values(q_model, np.array([[-1.0, 2.0]]), ["relu"])]
        [[[0.0, 2.0]]]
    """
    check_quantized(q_model)
    check_count("steps", steps)
    view = float_view(q_model).tensors
    floats = [name for name, tensor in view.items() if "float" in keras.backend.standardize_dtype(tensor.dtype)]
    names = floats if tensors is None else list(dict.fromkeys(tensors))
    for name in names:
        if name not in floats:
            raise SpecError(f"The model has no tensor of that name. {nearest_names(name, floats)} Received: {name!r}")
    function = functional_model(q_model.inputs, [view[name] for name in names], name="tensor_values")
    # `islice` takes no batch beyond `steps` from the caller's iterator.
    batches = itertools.islice(input_batches(q_model, data, batch_size), steps)
    return _values(q_model, function, names, batches, compare=compare)


def weight_values(q_model: QuantizedModel) -> dict[str, np.ndarray]:
    """Return the float values of all weights, by their names in the plan.

    Args:
        q_model: A model made by `quantize_model`.

    Returns:
        Arrays by `<layer>/<weight>`, in float before quantization; compare with `integer_weights`.

    Raises:
        NotQuantizedError: If the model was not made by `quantize_model`.

    Example:
        >>> from qdq_workbench import quantize_model
        >>> image = keras.Input((2,), name="image")
        >>> model = keras.Model(image, keras.layers.Dense(1, name="head", kernel_initializer="ones")(image))
        >>> {name: values.shape for name, values in weight_values(quantize_model(model)).items()}
        {'head/kernel': (2, 1), 'head/bias': (1,)}
    """
    found: dict[str, np.ndarray] = {}
    for call in float_view(check_quantized(q_model)).calls:
        if isinstance(call.operation, keras.layers.Layer):
            for name, variable in layer_weights(call.operation):
                found.setdefault(f"{call.node.layer}/{name}", keras.ops.convert_to_numpy(variable))
    return found


def _values(
    q_model: QuantizedModel,
    function: Any,
    names: list[str],
    batches: Iterator[list[Any]],
    *,
    compare: bool,
) -> Iterator[TensorValues]:
    """Run the batches; both runs share one traced function, because the quantizers' switches are variables."""
    dtypes = [tensor.dtype for tensor in q_model.inputs]

    def compute(inputs: list[Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        found = dict(zip(names, keras.tree.flatten(function(inputs, training=False)), strict=True))
        masks = {name: mask_of(value) for name, value in found.items()}
        floats = {name: tf.cast(value, tf.float32) for name, value in found.items()}
        return floats, {name: mask for name, mask in masks.items() if mask is not None}

    run = traced(compute, q_model.inputs)

    def read(inputs: list[Any], *, on: bool) -> list[dict[str, np.ndarray]]:
        layers = q_model.quantizing_layers
        # Restored before the batch is yielded: the caller may use the model between two batches.
        with switches_kept(layers):
            for layer in layers:
                layer.enabled.assign(value=on)
                layer.bypassed = False  # else the trace has no quantizer to switch on
            return [{name: value.numpy() for name, value in found.items()} for found in run(inputs)]

    for batch in batches:
        inputs = [tf.cast(tf.convert_to_tensor(x), dtype) for x, dtype in zip(batch, dtypes, strict=True)]
        with failures_named(batch):
            (floats, masks), quantized = read(inputs, on=False), read(inputs, on=True)[0] if compare else None
        yield TensorValues(floats, quantized, masks)
