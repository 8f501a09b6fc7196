"""Which nodes of an ONNX graph may become one operator: those of one layer, and those that the plan joins."""

from __future__ import annotations

from collections.abc import Callable

from qdq_workbench.export.node_names import layer_of, layers_by_name
from qdq_workbench.graph.model_graph import ModelGraph
from qdq_workbench.onnx_graph.graph import Node
from qdq_workbench.placement.lowering import Lowering


class PlannedJoins:
    """Answers the passes that join nodes, by the lowering of the plan.

    Where the layer of a node is not known, or the lowering does not know the operators of one of the layers, the pass
    decides.

    Args:
        graph: The graph of the plan.
        lowering: What an ONNX file holds of its nodes.
        final_name: Returns the name that a node will have in the file.
    """

    def __init__(self, graph: ModelGraph, lowering: Lowering, final_name: Callable[[str], str] = str) -> None:
        self._layers = layers_by_name(graph.layers)
        self._final_name = final_name
        self._known: dict[str, bool] = {}
        self._into: dict[str, set[str]] = {}
        for node in graph.nodes:
            lowered = lowering.nodes[node.name]
            self._known[node.layer] = self._known.get(node.layer, True) and lowered.operators is not None
            self._into.setdefault(node.layer, set()).update(graph.node(name).layer for name in lowered.into)

    def __call__(self, part: Node, whole: Node) -> bool:
        """Return whether `part` may become a part of `whole`."""
        one, other = (layer_of(self._final_name(node.name), self._layers) for node in (part, whole))
        if one is None or other is None or one == other or not (self._known[one] and self._known[other]):
            return True
        # TensorFlow may name a convolution after what it absorbed itself.
        return bool(self._into[one] & {other, *self._into[other]})
