"""Weights with scales along another axis than their layer's channels; no normalization is folded into them."""

from __future__ import annotations

from collections.abc import Iterable

from qdq_workbench.graph.model_graph import ModelGraph
from qdq_workbench.placement.defaults import find_default
from qdq_workbench.placement.placement import Placement


def kept_for_scales(graph: ModelGraph, placements: Iterable[Placement]) -> frozenset[str]:
    """Return the outputs of layers whose weight scales lie along another axis than the gains of a normalization."""
    layers = {placement.layer for placement in scales_along_other_axes(graph, placements)}
    return frozenset(tensor for layer in layers for node in graph.calls(layer) for tensor in node.outputs)


def scales_along_other_axes(graph: ModelGraph, placements: Iterable[Placement]) -> list[Placement]:
    """Return the weights with scales along another axis than their layer's channels, or in blocks."""
    found = []
    for placement in placements:
        axis = placement.quantizer.axis
        if placement.weight is None or axis is None:
            continue
        node = graph.node(placement.node)
        default = find_default(node)
        own = default.weights.get(placement.weight) if default is not None else None
        rank = next(len(weight.shape) for weight in node.weights if weight.name == placement.weight)
        # The gains of a normalization are one per channel: they fit into scales along the channels, not into blocks.
        if own is None or own % rank != axis or placement.quantizer.block_size is not None:
            found.append(placement)
    return found
