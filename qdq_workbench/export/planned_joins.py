"""The rule by which passes join nodes of an ONNX graph: within one layer, or as the lowering of the plan has it."""

from __future__ import annotations

from collections.abc import Callable

from qdq_workbench.export.node_names import layer_of, layers_by_name
from qdq_workbench.graph.model_graph import ModelGraph
from qdq_workbench.graph.twins import twins_of
from qdq_workbench.onnx_graph.graph import Node
from qdq_workbench.placement.lowering import Lowering


class PlannedJoins:
    """Tells the passes whether they may join two nodes, according to the lowering of the plan.

    A join is allowed where the layer of a node is not known, or the lowering does not list the operators of the layer
    that a node shall join; but not out of such a layer: the addition in a hard sigmoid is no bias of the layer before
    it, and padding in front of a pair would give it another shape.

    Args:
        graph: The graph of the plan.
        lowering: Its lowering to an ONNX file.
        final_name: Maps the name of a node during the passes to its name in the file.
    """

    def __init__(self, graph: ModelGraph, lowering: Lowering, final_name: Callable[[str], str] = str) -> None:
        self._layers = layers_by_name(graph.layers)
        self._final_name = final_name
        self._known: dict[str, bool] = {}
        self._into: dict[str, set[str]] = {}
        for node in graph.nodes:
            lowered = lowering.nodes[node.name]
            # One call with unknown operators is enough: names in the file do not tell the calls of a layer apart.
            self._known[node.layer] = self._known.get(node.layer, True) and lowered.operators is not None
            self._into.setdefault(node.layer, set()).update(graph.node(name).layer for name in lowered.into)
        # Converters merge equal operations on the same tensors, and name the result after one of them.
        for layer in list(self._into):
            self._into[layer] = self._into[layer].union(*(self._into[twin] for twin in twins_of(graph, layer)))

    def __call__(self, part: Node, whole: Node) -> bool:
        """Return whether `part` may become a part of `whole`."""
        one, other = (layer_of(self._final_name(node.name), self._layers) for node in (part, whole))
        if one is None or other is None or one == other:
            return True
        if not self._known[one]:
            return False
        if not self._known[other]:
            return True
        # TensorFlow may name a convolution after an operation that TensorFlow itself fused into it.
        return bool(self._into[one] & {other, *self._into[other]})
