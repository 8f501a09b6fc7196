"""Scale equalization: channels of one layer against those of the next.

A positively homogeneous activation f lets a channel be scaled on its way from one layer to the next,

    W2 f(W1 x + b1) = (W2 S^-1) f(S W1 x + S b1)        S diagonal, s_i > 0

"ranges"    s_i = sqrt(max|W2_i| / max|W1_i|) gives channel i of both weights the same range, so that weights with a
            scale per tensor lose less (Nagel et al. 2019, arXiv:1906.04721, section 4.1). Repeated along chains of
            several layers until the factors are 1.
"moments"   s_i = min(1 / sigma_i, 1), sigma_i the standard deviation of the activation that the batch normalization
            behind the first layer predicts: wide activation channels are narrowed (Sony's MCT, scale_equalization).
            With relu(z), z ~ N(beta, gamma^2), a = beta / |gamma|:
                mean     m = |gamma| * phi(a) + beta * Phi(a)
                moment   q = (beta^2 + gamma^2) * Phi(a) + beta * |gamma| * phi(a)        sigma^2 = q - m^2
"""

from __future__ import annotations

from typing import Any

import keras
import numpy as np

from qdq_workbench.conversion.engine.folding import lossless_folds, read_batch_norm
from qdq_workbench.conversion.engine.rebuild import Rebuilder
from qdq_workbench.conversion.transforms.fold_batch_norm import fold_batch_norm
from qdq_workbench.errors import QuantizerError
from qdq_workbench.graph_builder import bind_graph
from qdq_workbench.post_training.chains import Chain, find_chains
from qdq_workbench.post_training.gaussian import rectified_moments
from qdq_workbench.post_training.weight_grids import bind_float, multiply

_ROUNDS = 20  # scaling one chain changes the ranges of its neighbours
_STEADY = 1e-4
_LARGEST = 2.0**20  # bounds the factor of a channel whose weights are near zero


def equalize_scales(model: keras.Model, method: str = "ranges") -> keras.Model:
    """Return a copy of a float model whose channels are scaled to reduce the quantization error.

    Batch normalizations are folded first. A channel is scaled if a convolution (`Conv1D`, `Conv2D`, `Conv1DTranspose`,
    `Conv2DTranspose`, `DepthwiseConv2D`) or a `Dense` has exactly one reader of these classes, with only ReLU-like
    activations and per-channel layers (pooling, padding, dropout) in between; nothing else changes. Layers with
    low-rank updates (LoRA) stay as they are: `merge_lora` first. The function of the model stays the same up to float
    rounding. See the module docstring for the equations.

    Args:
        model: A built functional or sequential Keras model; it is only read. Nested models are flattened.
        method: "ranges", or "moments" (only layers that absorbed a batch normalization and have a ReLU behind them).

    Returns:
        The equalized model, not compiled.

    Raises:
        QuantizerError: If the method is unknown.
        UnsupportedModelError: If the model's graph cannot be read.
        UnbuiltModelError: If the model does not know its input shape.

    Example:
        >>> image = keras.Input((2,), name="image")
        >>> hidden = keras.layers.Dense(2, activation="relu", name="first")(image)
        >>> model = keras.Model(image, keras.layers.Dense(1, name="second")(hidden))
        >>> model.get_layer("first").kernel.assign([[8.0, 1.0], [8.0, 1.0]]).shape
        TensorShape([2, 2])
        >>> model.get_layer("second").kernel.assign([[0.5], [1.0]]).shape
        TensorShape([2, 1])
        >>> equalize_scales(model).get_layer("first").kernel.numpy().tolist()
        [[2.0, 1.0], [2.0, 1.0]]
    """
    if method not in ("ranges", "moments"):
        raise QuantizerError(f'method must be "ranges" or "moments". Received: method={method!r}')
    bind_float(model)  # a quantized model is refused
    deviations = _deviations(model) if method == "moments" else {}
    builder = Rebuilder(bind_graph(fold_batch_norm(model)))
    copy = builder.rebuilt(model.name)
    chains = find_chains(builder.graph)
    if method == "moments":
        for chain in chains:
            if chain.producer.layer in deviations and _is_rectified(chain):
                _scale(builder.clones, chain, np.minimum(1.0 / deviations[chain.producer.layer], 1.0))
        return copy
    for _ in range(_ROUNDS):
        moved = [_equalize(builder.clones, chain) for chain in chains]
        if max(moved, default=0.0) < _STEADY:
            break
    return copy


def _equalize(layers: dict[str, Any], chain: Chain) -> float:
    """Equalize one chain; return by how much the largest factor differs from 1."""
    first = _channel_maxima(layers[chain.producer.layer], chain.axes[0])
    second = _channel_maxima(layers[chain.consumer.layer], chain.axes[1])
    usable = (first > 0) & (second > 0)
    # A channel whose weights are all zero on one side keeps the factor 1.
    ratio = np.divide(second, first, out=np.ones_like(first), where=usable)
    factor = np.clip(np.sqrt(ratio), 1 / _LARGEST, _LARGEST)
    _scale(layers, chain, factor)
    return float(np.abs(factor - 1.0).max(initial=0.0))


def _channel_maxima(layer: Any, axis: int) -> np.ndarray:
    kernel = np.abs(np.asarray(layer.kernel, np.float64))
    return np.asarray(kernel.max(axis=tuple(index for index in range(kernel.ndim) if index != axis)))


def _scale(layers: dict[str, Any], chain: Chain, factor: np.ndarray) -> None:
    """Multiply the channels of the producer, and divide those of the consumer."""
    producer, consumer = layers[chain.producer.layer], layers[chain.consumer.layer]
    multiply(producer.kernel, factor, chain.axes[0])
    if producer.use_bias:
        multiply(producer.bias, factor, 0)
    multiply(consumer.kernel, 1.0 / factor, chain.axes[1])


def _is_rectified(chain: Chain) -> bool:
    """Return whether the producer applies a plain ReLU, or one follows it directly, as the moments assume."""
    first = chain.producer if chain.producer.activation_name != "linear" else next(iter(chain.between), None)
    return first is not None and first.activation_name == "relu"


def _deviations(model: keras.Model) -> dict[str, np.ndarray]:
    """Return the standard deviations of rectified outputs, by the name of the layer in the folded model."""
    bound = bind_graph(model)
    layers = {call.node.name: call.operation for call in bound.calls}
    # Folding rebuilds the model, so its layers have the names that a `Rebuilder` gives them.
    names = Rebuilder(bound).names
    found = {}
    for fold in lossless_folds(bound):
        norm = read_batch_norm(layers[fold.batch_norm.name])
        _, variance = rectified_moments(norm.beta, np.abs(norm.gamma))
        # A constant channel has no deviation; the bound keeps 1 / sigma finite, and min(1 / sigma, 1) is then 1.
        found[names[fold.layer.layer]] = np.sqrt(np.maximum(variance, 1e-12))
    return found
