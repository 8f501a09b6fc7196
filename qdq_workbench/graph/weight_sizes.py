"""The number of values of every weight of a model."""

from __future__ import annotations

import math
from collections.abc import Mapping

from qdq_workbench.graph.model_graph import ModelGraph

Sizes = tuple[tuple[str, int], ...]


def weight_sizes(graph: ModelGraph) -> Mapping[str, Sizes]:
    """Return name (`<layer>/<weight>`) and number of values of every weight, by layer.

    Example:
        >>> from qdq_workbench.graph.model_graph import Node, Weight
        >>> dense = Node("d", "d", "Dense", outputs=("d",), weights=(Weight("kernel", (4, 3)), Weight("bias", (3,))))
        >>> weight_sizes(ModelGraph("net", (dense,), {}, (), ()))["d"]
        (('d/kernel', 12), ('d/bias', 3))
    """
    return graph.once(_weight_sizes)


def _weight_sizes(graph: ModelGraph) -> dict[str, Sizes]:
    found: dict[str, Sizes] = {}
    for node in graph.nodes:
        if node.layer not in found:
            sizes = ((f"{node.layer}/{weight.name}", math.prod(weight.shape)) for weight in node.weights)
            found[node.layer] = tuple(sizes)
    return found
