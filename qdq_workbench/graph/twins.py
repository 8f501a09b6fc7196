"""Layers that read the same values, of which converters make one where they compute alike."""

from __future__ import annotations

from qdq_workbench.graph.model_graph import ModelGraph
from qdq_workbench.graph.op_kinds import vanishes


def twins_of(graph: ModelGraph, layer: str) -> set[str]:
    """Return the other layers that are called on the inputs of a layer, or on what is computed like them.

    Converters merge those that compute alike, and name the result after one of them.
    """
    values, by_values = graph.once(_readers_by_values)
    read = (tuple(values[tensor] for tensor in call.inputs) for call in graph.calls(layer) if call.inputs)
    return {other for each in read for other in by_values[each]} - {layer}


def _readers_by_values(graph: ModelGraph) -> tuple[dict[str, str], dict[tuple[str, ...], set[str]]]:
    """Return for each tensor the first one that is computed alike, and the layers by such tensors that they read."""
    values: dict[str, str] = {}
    first: dict[object, str] = {}
    layers: dict[tuple[str, ...], set[str]] = {}
    for node in graph.nodes:
        read = tuple(values[tensor] for tensor in node.inputs)
        layers.setdefault(read, set()).add(node.layer)
        for index, tensor in enumerate(node.outputs):
            is_function = bool(read) and not node.weights and not node.opaque
            key = (node.class_name, repr(node.settings), read, index) if is_function else tensor
            values[tensor] = read[0] if vanishes(node) else first.setdefault(key, tensor)
    return values, layers
