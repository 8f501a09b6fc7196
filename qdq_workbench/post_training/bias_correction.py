"""Bias correction: subtract the mean shift that quantizing the weights causes.

With W' the quantized weight, a layer's output shifts on average by

    E[W' x - W x] = sum over inputs of (W' - W) * E[x]            per output channel

which is subtracted from the bias. E[x], one mean per input channel, comes from data, or from the batch normalization
in front of the layer: E[x] = beta, or the mean of the rectified Gaussian N(beta, gamma^2) behind a ReLU. The zeros that
a convolution pads with are treated as if they had the mean value, so borders are corrected slightly too much.
Positions that a mask leaves out, such as the padding of sequences, do not count for a layer that supports masking.

Sources: Nagel et al. 2019, arXiv:1906.04721, section 4.2; Finkelstein et al. 2019, arXiv:1906.03193; MCT's
`compute_bias_correction_of_graph`.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Mapping
from typing import Any

import keras
import numpy as np
import numpy.typing as npt

from qdq_workbench._progress import check_count
from qdq_workbench.calibration.batches import input_batches
from qdq_workbench.calibration.failures import failures_named
from qdq_workbench.calibration.padding import mask_of, rows_of
from qdq_workbench.conversion.engine.deep_models import functional_model
from qdq_workbench.conversion.engine.folding import read_batch_norm
from qdq_workbench.conversion.engine.rebuild import Rebuilder, keras_name
from qdq_workbench.errors import DataError, SpecError
from qdq_workbench.graph.model_graph import ModelGraph, Node
from qdq_workbench.graph_builder import BoundGraph, layer_weights
from qdq_workbench.placement.plan import Placement, PlacementPlan
from qdq_workbench.placement.targets import Target
from qdq_workbench.post_training.added_biases import BiasRebuilder
from qdq_workbench.post_training.chains import REWRITTEN
from qdq_workbench.post_training.gaussian import rectified_moments
from qdq_workbench.post_training.weight_grids import bind_float, rounded, variable_of, weight_placements


def correct_biases(
    model: keras.Model,
    data: Any = None,
    *,
    plan: PlacementPlan | None = None,
    target: str | Target = "tensorrt",
    steps: int | None = None,
    batch_size: int = 32,
    reference: keras.Model | None = None,
) -> keras.Model:
    """Return a copy of a float model whose biases compensate for the rounding of its weights.

    The outputs of the corrected float model itself are shifted; they are right once its weights are quantized. It
    corrects the `Conv1D`, `Conv2D`, `DepthwiseConv2D` and `Dense` layers that the plan quantizes; without data only
    those that read a batch normalization, directly or through a ReLU (so do not fold before). Layers without a bias
    get one.

    Args:
        model: A built functional or sequential Keras model; it is only read. Nested models are flattened.
        data: Samples as for `calibrate`, to measure the means of the layers' inputs; None to take the means that the
            batch normalizations predict.
        plan: A plan of this model, which decides the quantized weights and their grids; None for the default plan.
        target: The target of the default plan. A plan has its own.
        steps: How many batches of the data to read at most, at least 1; None for all.
        batch_size: How many samples of an array make a batch, at least 1.
        reference: The model before its weights were clipped or clustered, so that the shift that this causes is
            corrected, too; None to correct the rounding of the weights as they are.

    Returns:
        The corrected model, not compiled.

    Raises:
        SpecError: If the plan is of another model, or for another target than the given one, or `reference` has other
            layers.
        DataError: If the data do not fit the model, a layer's input holds NaN or infinity or is padding alone, or
            `steps` or `batch_size` is out of its range.
        TargetError: If the target is unknown.
        UnsupportedModelError: If the model's graph cannot be read.
        UnbuiltModelError: If the model does not know its input shape.

    Example:
        >>> image = keras.Input((2,), name="image")
        >>> model = keras.Model(image, keras.layers.Dense(1, name="head")(image))
        >>> model.get_layer("head").kernel.assign([[1.0], [0.502]]).shape
        TensorShape([2, 1])
        >>> corrected = correct_biases(model, np.ones((4, 2), "float32"))  # 0.502 becomes 64 / 127
        >>> round(float(corrected.get_layer("head").bias[0]), 6)
        -0.001937
    """
    check_count("steps", steps)
    bound = bind_float(model)
    correctable = {p.layer: p for p in weight_placements(model, bound, plan, target) if _is_correctable(bound.graph, p)}
    builder = BiasRebuilder(bound, correctable)
    corrected = builder.rebuilt(model.name)
    originals = {} if reference is None else _kernels_of(reference, builder.clones, correctable)
    inputs = {layer: bound.graph.calls(layer)[0].inputs[0] for layer in correctable}
    if data is None:
        predicted = _means_of_norms(bound, set(inputs.values()))
        means = {layer: predicted[name] for layer, name in inputs.items() if name in predicted}
    else:
        means = _measured_means(builder, corrected, inputs, data, steps, batch_size)
    for layer, placement in correctable.items():
        if layer in means:
            clone = builder.clones[layer]
            original = originals.get(layer)
            shift = _shift(clone, bound.graph.calls(layer)[0], placement, means[layer], original)
            clone.bias.assign((np.asarray(clone.bias, np.float64) - shift).astype(np.float32))
    return corrected


def _is_correctable(graph: ModelGraph, placement: Placement) -> bool:
    calls = graph.calls(placement.layer)
    node = calls[0]
    return (
        placement.weight == "kernel"
        and node.class_name in REWRITTEN
        and not node.opaque
        # A shared layer has one bias, but its inputs have other means at every call.
        and len(calls) == 1
        and len(node.inputs) == 1
        and node.settings.get("data_format", "channels_last") == "channels_last"
        and node.settings.get("groups", 1) == 1
    )


def _kernels_of(
    reference: keras.Model, clones: Mapping[str, Any], layers: Collection[str]
) -> dict[str, npt.NDArray[np.float32]]:
    """Return the kernels of the same layers in another model, which may still be nested where this one is flat."""
    bound = bind_float(reference)
    # A flat copy of a nested model has the names that a `Rebuilder` gives its layers.
    names = Rebuilder(bound).names
    flat = {names[call.node.layer]: call.operation for call in bound.calls}
    others = flat if flat.keys() >= set(layers) else {call.node.layer: call.operation for call in bound.calls}
    found = {}
    for layer in layers:
        other = others.get(layer, others.get(keras_name(layer)))
        kernel = None if other is None else dict(layer_weights(other)).get("kernel")
        if kernel is None or kernel.shape != variable_of(clones[layer], "kernel").shape:
            raise SpecError(
                "reference must have the layers of the model, with weights of the same shapes. "
                f"Received: reference {reference.name!r} without a layer like {layer!r}"
            )
        found[layer] = np.asarray(kernel, np.float32)
    return found


def _shift(
    layer: Any, node: Node, placement: Placement, means: np.ndarray, original: npt.NDArray[np.float32] | None
) -> np.ndarray:
    """Return the mean shift of every output channel."""
    # The attribute `kernel` of a layer with a low-rank update is the sum, of which only the kernel is rounded.
    kernel = np.asarray(variable_of(layer, "kernel"), np.float32)
    error = rounded(kernel, placement.quantizer) - (kernel if original is None else original)
    if node.class_name == "DepthwiseConv2D":
        # Keras orders the outputs by channel, then by multiplier, as flattening (C, M) does.
        return np.asarray((error.sum(axis=(0, 1)) * means[:, None]).reshape(-1))
    spatial = tuple(range(kernel.ndim - 2))
    return np.asarray(means @ error.sum(axis=spatial))


def _measured_means(
    builder: Rebuilder, model: keras.Model, inputs: Mapping[str, str], data: Any, steps: int | None, batch_size: int
) -> dict[str, np.ndarray]:
    """Return the mean of every channel of the layers' inputs over data, by layer."""
    names = sorted(set(inputs.values()))
    if not names:
        return {}
    function = functional_model(model.inputs, [builder.values[name] for name in names], name="means")
    totals, counts = dict.fromkeys(inputs, np.zeros(())), dict.fromkeys(inputs, np.zeros(()))
    for batch in itertools.islice(input_batches(model, data, batch_size), steps):
        with failures_named(batch):
            values = dict(zip(names, keras.tree.flatten(function(batch, training=False)), strict=True))
        for layer, name in inputs.items():
            mask = mask_of(values[name], builder.clones[layer])
            rows, valid = rows_of(np.asarray(values[name], np.float64), None if mask is None else np.asarray(mask))
            totals[layer] = totals[layer] + rows.sum(axis=0)
            counts[layer] = counts[layer] + valid.sum(axis=0)
    for layer, total in totals.items():
        if not np.isfinite(total).all():
            raise DataError(
                f"{inputs[layer]!r} holds NaN or infinity on these data, so its mean would make biases unusable; "
                f"drop such samples, or look for the layer that makes it. Received: sums {total[:4]}"
            )
        if not counts[layer].any():
            raise DataError(
                "What a layer reads has no mean where its mask leaves out all values; give samples that are not "
                f"padding alone. Received: no value of {inputs[layer]!r}"
            )
    return {layer: total / np.maximum(counts[layer], 1) for layer, total in totals.items()}


def _means_of_norms(bound: BoundGraph, tensors: set[str]) -> dict[str, np.ndarray]:
    """Return the means that batch normalizations predict for the tensors behind them."""
    graph = bound.graph
    layers = {call.node.name: call.operation for call in bound.calls}
    found = {}
    for tensor in tensors:
        node = graph.producer(tensor)
        rectified = node.is_activation and node.activation_name == "relu" and len(node.inputs) == 1
        if rectified:
            node = graph.producer(node.inputs[0])
        if node.is_operation or not node.is_a("BatchNormalization"):
            continue
        norm = read_batch_norm(layers[node.name])
        rank = len(graph.tensors[tensor].shape)
        if norm.axis % rank != rank - 1:  # its channels are not those that the layer behind it reads
            continue
        # N(beta, gamma^2) does not depend on the sign of gamma, but the formula takes a deviation.
        found[tensor] = rectified_moments(norm.beta, np.abs(norm.gamma))[0] if rectified else norm.beta
    return found
