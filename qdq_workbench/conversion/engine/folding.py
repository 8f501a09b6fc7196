"""Folding batch normalizations into the layers before them.

With g = gamma / sqrt(variance + epsilon) per output channel:

    W' = W * g          b' = beta + (b - mean) * g

A weight on a symmetric narrow grid per output channel keeps its integers: s' = s * |g|, q' = sign(g) * q
(Jacob et al. 2018, section 3.2; the sign because gamma may be negative). Where g = 0 the channel is all zero.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Any

import keras
import numpy as np

from qdq_workbench.conversion.engine.rebuild import Rebuilder, clone_operation
from qdq_workbench.graph.folds import Fold, find_folds
from qdq_workbench.graph.kinds import DEPTHWISE, SEPARABLE, TRANSPOSED
from qdq_workbench.graph_builder import BoundGraph, Call


@dataclasses.dataclass(frozen=True)
class BatchNorm:
    """The variables of a BatchNormalization, each of shape (C,) in float64, its epsilon and its axis."""

    gamma: np.ndarray
    beta: np.ndarray
    mean: np.ndarray
    variance: np.ndarray
    epsilon: float
    axis: int


def read_batch_norm(layer: Any) -> BatchNorm:
    """Return the variables of a BatchNormalization; gamma is 1 and beta 0 where it has none."""
    mean, variance = (np.asarray(v, np.float64) for v in (layer.moving_mean, layer.moving_variance))
    gamma = np.asarray(layer.gamma, np.float64) if layer.scale else np.ones(mean.shape)
    beta = np.asarray(layer.beta, np.float64) if layer.center else np.zeros(mean.shape)
    axis = layer.axis[0] if isinstance(layer.axis, (list, tuple)) else layer.axis
    return BatchNorm(gamma, beta, mean, variance, float(layer.epsilon), int(axis))


def batch_norm_gain(layer: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return g and h of shape (C,), in float64, such that a BatchNormalization computes `x * g + h` at inference."""
    norm = read_batch_norm(layer)
    gain = 1.0 / np.sqrt(norm.variance + norm.epsilon) * norm.gamma
    return gain, norm.beta - norm.mean * gain


def folded_weight(class_name: str, weight_name: str) -> bool:
    """Return whether folding multiplies this weight of a layer of that class by the gain."""
    return weight_name == ("pointwise_kernel" if class_name in SEPARABLE else "kernel")


def spread_gain(class_name: str, gain: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """Return the gain per output channel, reshaped to broadcast over a kernel of this shape."""
    if class_name in TRANSPOSED:
        # Kernel (..., out, in).
        return gain.reshape(*[1] * (len(shape) - 2), -1, 1)
    if class_name in DEPTHWISE:
        # Kernel (..., in, m): slice [c, k] computes output channel c * m + k.
        return gain.reshape(*[1] * (len(shape) - 2), *shape[-2:])
    return gain.reshape(*[1] * (len(shape) - 1), -1)


def lossless_folds(bound: BoundGraph) -> list[Fold]:
    """Return the folds of a float model that keep its loss as well: none of layers with an activity regularizer.

    Behind a fold there is one tensor, so that the regularizer of the layer would see the normalized one.
    """
    regularized = {
        call.node.layer
        for call in bound.calls
        if isinstance(call.operation, keras.layers.Layer) and call.operation.activity_regularizer is not None
    }
    return [
        fold for fold in find_folds(bound.graph) if regularized.isdisjoint((fold.layer.layer, fold.batch_norm.layer))
    ]


class FoldingRebuilder(Rebuilder):
    """Rebuilds a float graph with some of its batch normalizations folded."""

    def __init__(self, bound: BoundGraph, folds: Iterable[Fold]) -> None:
        super().__init__(bound)
        self.folds = list(folds)
        self._folded = {fold.layer.layer: fold for fold in self.folds}
        self._absorbed = {fold.batch_norm.name for fold in self.folds}

    def compute(self, call: Call, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call the replacement of an operation; folded batch normalizations vanish."""
        if call.node.name in self._absorbed:
            return keras.tree.flatten((args, kwargs))[0]
        return super().compute(call, args, kwargs)

    def make(self, call: Call) -> Any:
        """Clone a layer; one that absorbs a batch normalization gets a bias."""
        clone = super().make(call)
        if call.node.layer not in self._folded or clone.use_bias:
            return clone
        config = {**clone.get_config(), "use_bias": True}
        # `late` does not know this copy, which has one variable more than its source; it gets the folded values.
        return clone_operation(type(clone).from_config(config), clone.name)

    def copy_weights(self) -> None:
        """Copy all variables; layers that absorb a batch normalization get their folded values."""
        sources = {call.node.layer: call.operation for call in self.bound.calls}
        for layer, clone in self.clones.items():
            if layer in self._folded:
                fold = self._folded[layer]
                _assign_folded(fold, sources[layer], sources[fold.batch_norm.layer], clone)
            elif isinstance(clone, keras.layers.Layer):
                self.copy_state(sources[layer], clone)


def _assign_folded(fold: Fold, source: Any, batch_norm: Any, clone: Any) -> None:
    gain, shift = batch_norm_gain(batch_norm)
    class_name = fold.layer.class_name
    bias = np.asarray(source.bias, np.float64) if source.use_bias else 0.0
    clone.bias.assign((bias * gain + shift).astype(np.float32))
    if class_name in SEPARABLE:
        clone.depthwise_kernel.assign(source.depthwise_kernel)
        theirs, ours = source.pointwise_kernel, clone.pointwise_kernel
    else:
        theirs, ours = source.kernel, clone.kernel
    kernel = np.asarray(theirs, np.float64)
    ours.assign((kernel * spread_gain(class_name, gain, kernel.shape)).astype(np.float32))
    clone.trainable = source.trainable
