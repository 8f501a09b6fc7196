"""The number of values of every weight of a model."""

from __future__ import annotations

import math
from collections.abc import Mapping

from qdq_workbench.graph.model_graph import ModelGraph


def weight_sizes(graph: ModelGraph) -> Mapping[str, Mapping[str, int]]:
    """Return the number of values of every weight, by layer and name (`<layer>/<weight>`).

    Example:
        >>> from qdq_workbench.graph.model_graph import Node, Weight
        >>> dense = Node("d", "d", "Dense", outputs=("d",), weights=(Weight("kernel", (4, 3)), Weight("bias", (3,))))
        >>> weight_sizes(ModelGraph("net", (dense,), {}, (), ()))["d"]
        {'d/kernel': 12, 'd/bias': 3}
    """
    return graph.once(_weight_sizes)


def _weight_sizes(graph: ModelGraph) -> dict[str, dict[str, int]]:
    found: dict[str, dict[str, int]] = {}
    for node in graph.nodes:
        if node.layer not in found:
            found[node.layer] = {f"{node.layer}/{weight.name}": math.prod(weight.shape) for weight in node.weights}
    return found
