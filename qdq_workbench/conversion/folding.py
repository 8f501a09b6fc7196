"""Folding batch normalizations into the layers before them.

With g = gamma / sqrt(variance + epsilon) per output channel:

    W' = W * g          b' = beta + (b - mean) * g

A weight on a symmetric narrow grid per output channel keeps its integers: s' = s * |g|, q' = sign(g) * q
(Jacob et al. 2018, section 3.2; the sign because gamma may be negative). Where g = 0 the channel is all zero.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection
from typing import Any

import keras
import numpy as np

from qdq_workbench.conversion.rebuild import Rebuilder, clone_operation, copy_variables
from qdq_workbench.graph.model_graph import ModelGraph, Node
from qdq_workbench.graph.op_kinds import activation_name
from qdq_workbench.graph_builder import BoundGraph, Call

_TRANSPOSED = ("Conv1DTranspose", "Conv2DTranspose", "Conv3DTranspose")
_DEPTHWISE = ("DepthwiseConv1D", "DepthwiseConv2D")
_SEPARABLE = ("SeparableConv1D", "SeparableConv2D")
_FOLDABLE = ("Conv1D", "Conv2D", "Conv3D", "Dense", *_TRANSPOSED, *_DEPTHWISE, *_SEPARABLE)


@dataclasses.dataclass(frozen=True)
class Fold:
    """A layer and the batch normalization that is folded into it.

    Args:
        layer: The call of the layer.
        batch_norm: The call of the batch normalization.
    """

    layer: Node
    batch_norm: Node


def find_folds(graph: ModelGraph, kept: Collection[str] = ()) -> list[Fold]:
    """Return the batch normalizations that can be folded without changing what the model computes.

    Args:
        graph: The model.
        kept: Tensors that must still exist afterwards, because they are quantized.
    """
    return [
        Fold(graph.producer(node.inputs[0]), node)
        for node in graph.nodes
        if not node.is_operation and node.is_a("BatchNormalization") and _can_fold(graph, node, kept)
    ]


def _can_fold(graph: ModelGraph, batch_norm: Node, kept: Collection[str]) -> bool:
    tensor = batch_norm.inputs[0]
    layer = graph.producer(tensor)
    return (
        len(batch_norm.inputs) == 1
        and layer.class_name in _FOLDABLE
        and not layer.is_operation
        and not layer.opaque
        and not batch_norm.opaque
        and activation_name(layer) == "linear"
        and tensor not in kept
        and graph.has_one_use(tensor)
        and len(graph.calls(layer.layer)) == len(graph.calls(batch_norm.layer)) == 1
        and _channel_axis(graph, layer) == _batch_norm_axis(graph, batch_norm)
    )


def _channel_axis(graph: ModelGraph, layer: Node) -> int:
    rank = len(graph.tensors[layer.outputs[0]].shape)
    return 1 if layer.settings.get("data_format") == "channels_first" else rank - 1


def _batch_norm_axis(graph: ModelGraph, batch_norm: Node) -> int:
    rank = len(graph.tensors[batch_norm.inputs[0]].shape)
    axis = batch_norm.settings.get("axis", -1)
    return int(axis[0] if isinstance(axis, (list, tuple)) else axis) % rank


def batch_norm_gain(layer: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return what a BatchNormalization does at inference as a gain and a shift per channel, in float64.

    Args:
        layer: A built BatchNormalization.

    Returns:
        Arrays g and h of shape (C,) such that the layer computes `x * g + h`.
    """
    mean, variance = (np.asarray(v, np.float64) for v in (layer.moving_mean, layer.moving_variance))
    gain = 1.0 / np.sqrt(variance + layer.epsilon)
    if layer.scale:
        gain = gain * np.asarray(layer.gamma, np.float64)
    shift = -mean * gain
    return gain, shift + np.asarray(layer.beta, np.float64) if layer.center else shift


def folded_weight(class_name: str, weight_name: str) -> bool:
    """Return whether the gain goes into this weight of a layer of that class."""
    return weight_name == ("pointwise_kernel" if class_name in _SEPARABLE else "kernel")


def spread_gain(class_name: str, gain: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """Return the gain per output channel, shaped so that it multiplies a kernel.

    Args:
        class_name: Class of the layer.
        gain: Shape (C,).
        shape: Shape of the kernel.
    """
    if class_name in _TRANSPOSED:
        return gain.reshape(*[1] * (len(shape) - 2), -1, 1)
    if class_name in _DEPTHWISE:
        return gain.reshape(*[1] * (len(shape) - 2), *shape[-2:])
    return gain.reshape(*[1] * (len(shape) - 1), -1)


class FoldingRebuilder(Rebuilder):
    """Rebuilds a float graph with its batch normalizations folded."""

    def __init__(self, bound: BoundGraph, kept: Collection[str] = (), *, fold: bool = True) -> None:
        super().__init__(bound)
        self.folds = find_folds(bound.graph, kept) if fold else []
        self._folded = {pair.layer.layer: pair for pair in self.folds}
        self._absorbed = {pair.batch_norm.name for pair in self.folds}

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
        return clone_operation(type(clone).from_config(config), clone.name)

    def copy_weights(self) -> None:
        """Copy all variables, and give the layers that absorb a batch normalization their folded values."""
        sources = {call.node.layer: call.operation for call in self.bound.calls}
        for layer, clone in self.clones.items():
            if layer in self._folded:
                pair = self._folded[layer]
                _assign_folded(pair, sources[layer], sources[pair.batch_norm.layer], clone)
            elif isinstance(clone, keras.layers.Layer):
                copy_variables(sources[layer], clone)


def _assign_folded(pair: Fold, source: Any, batch_norm: Any, clone: Any) -> None:
    gain, shift = batch_norm_gain(batch_norm)
    class_name = pair.layer.class_name
    bias = np.asarray(source.bias, np.float64) if source.use_bias else 0.0
    clone.bias.assign((bias * gain + shift).astype(np.float32))
    if class_name in _SEPARABLE:
        clone.depthwise_kernel.assign(source.depthwise_kernel)
        theirs, ours = source.pointwise_kernel, clone.pointwise_kernel
    else:
        theirs, ours = source.kernel, clone.kernel
    kernel = np.asarray(theirs, np.float64)
    ours.assign((kernel * spread_gain(class_name, gain, kernel.shape)).astype(np.float32))
    clone.trainable = source.trainable
