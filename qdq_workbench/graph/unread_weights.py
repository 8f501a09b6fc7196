"""Weights of a layer that no output of the model depends on, because only some of the layer's results are read.

    Bidirectional(LSTM(return_state=True))       [merged, forward h, forward c, backward h, backward c]
    MultiHeadAttention(return_attention_scores)  [result, scores]

A converter omits unread results, so weights that serve only these must not be planned.
"""

from __future__ import annotations

from collections.abc import Collection

from qdq_workbench.graph.kinds import MULTI_HEAD_ATTENTION
from qdq_workbench.graph.model_graph import ModelGraph, Node

_DIRECTIONS = ("forward_layer/", "backward_layer/")
#: The weights from which an attention layer computes its scores.
_BEHIND_SCORES = ("query/", "key/", "query_norm/", "key_norm/")


def unread_weights(graph: ModelGraph, layer: str) -> frozenset[str]:
    """Return the weights of a layer, by name, that no output of the model depends on in any of the layer's calls."""
    calls = graph.calls(layer)
    if len(calls[0].outputs) == 1 or calls[0].opaque:
        return frozenset()
    unread = [_unread_by(call, _read(graph, call)) for call in calls]
    return frozenset.intersection(*unread)


def _read(graph: ModelGraph, node: Node) -> set[int]:
    """Return which results of a call are read, or are outputs of the model."""
    return {index for index, name in enumerate(node.outputs) if graph.readers(name) or name in graph.outputs}


def _unread_by(node: Node, read: Collection[int]) -> frozenset[str]:
    names = [weight.name for weight in node.weights]
    if node.class_name == "Bidirectional" and _is_symmetric(node):
        needed = {direction for index in read for direction in _directions_of(index, len(node.outputs))}
        return frozenset(name for name in names if name.startswith(_DIRECTIONS) and not name.startswith(tuple(needed)))
    if node.class_name in MULTI_HEAD_ATTENTION and 0 not in read:
        return frozenset(name for name in names if not name.startswith(_BEHIND_SCORES))
    return frozenset()


def _is_symmetric(node: Node) -> bool:
    """Return whether both directions hold the same layers, and thus return equally many states."""
    forward, backward = (
        [(part.name[len(way) :], part.class_name) for part in node.parts if part.name.startswith(way)]
        for way in _DIRECTIONS
    )
    return forward == backward and bool(forward)


def _directions_of(index: int, count: int) -> tuple[str, ...]:
    """Return the directions that one of `count` results needs: an even count has no merged result at its start."""
    results = 2 - count % 2
    if index < results:
        return _DIRECTIONS if results == 1 else (_DIRECTIONS[index],)
    return (_DIRECTIONS[(index - results) // ((count - results) // 2)],)
