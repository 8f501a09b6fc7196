"""Batch normalizations that can be folded into the layer before them."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Collection

from qdq_workbench.graph.float_inside import has_low_rank_update
from qdq_workbench.graph.kinds import BATCH_NORMALIZATION, DEPTHWISE, classes_where
from qdq_workbench.graph.model_graph import ModelGraph, Node

_FOLDABLE = classes_where(lambda kind: kind.folds)


@dataclasses.dataclass(frozen=True)
class Fold:
    """A call of a layer and the batch normalization that is folded into it.

    Args:
        layer: The call of the layer.
        batch_norm: The call of the batch normalization.
    """

    layer: Node
    batch_norm: Node


def find_folds(graph: ModelGraph, kept: Collection[str] = (), integer_weights: Collection[str] = ()) -> list[Fold]:
    """Return the batch normalizations that can be folded without changing what the model computes.

    Those on `kept` tensors, which must still exist because they are quantized, are left out, and those that would
    change the integers of a weight in `integer_weights`. The calls of a shared layer have one set of weights, so the
    same batch normalization must follow every call.
    """
    found = [
        fold
        for fold in graph.once(_foldable)
        if fold.batch_norm.inputs[0] not in kept and _keeps_integers(fold.layer, integer_weights)
    ]
    together = Counter((fold.layer.layer, fold.batch_norm.layer) for fold in found)
    return [
        fold
        for fold in found
        if together[fold.layer.layer, fold.batch_norm.layer]
        == len(graph.calls(fold.layer.layer))
        == len(graph.calls(fold.batch_norm.layer))
    ]


def _foldable(graph: ModelGraph) -> list[Fold]:
    """Return the batch normalizations that can be folded if no pair is in between, which depends on the graph alone."""
    return [
        Fold(graph.producer(node.inputs[0]), node)
        for node in graph.nodes
        if not node.is_operation and node.is_a(*BATCH_NORMALIZATION) and _can_fold(graph, node)
    ]


def _keeps_integers(layer: Node, integer_weights: Collection[str]) -> bool:
    """Return False for a quantized depthwise kernel with a multiplier, whose scales would get several gains each."""
    if layer.class_name not in DEPTHWISE or f"{layer.layer}/kernel" not in integer_weights:
        return True
    return all(weight.shape[-1] == 1 for weight in layer.weights if weight.name == "kernel")


def _can_fold(graph: ModelGraph, batch_norm: Node) -> bool:
    tensor = batch_norm.inputs[0]
    layer = graph.producer(tensor)
    return (
        len(batch_norm.inputs) == 1
        and layer.class_name in _FOLDABLE
        and not layer.is_operation
        and not layer.opaque
        and not batch_norm.opaque
        # Its kernel is a sum, of which the file holds one part as integers.
        and not has_low_rank_update(layer)
        and layer.activation_name == "linear"
        and graph.has_one_use(tensor)
        and _channel_axis(graph, layer) == _batch_norm_axis(graph, batch_norm)
    )


def _channel_axis(graph: ModelGraph, layer: Node) -> int:
    rank = len(graph.tensors[layer.outputs[0]].shape)
    return 1 if layer.settings.get("data_format") == "channels_first" else rank - 1


def _batch_norm_axis(graph: ModelGraph, batch_norm: Node) -> int:
    rank = len(graph.tensors[batch_norm.inputs[0]].shape)
    axis = batch_norm.settings.get("axis", -1)
    return int(axis[0] if isinstance(axis, (list, tuple)) else axis) % rank
