"""Max pooling."""

from __future__ import annotations

from qdq_workbench.cases.base import GraphCase, check_is_quantizable_by_layer_name
from qdq_workbench.graph.model_graph import ModelGraph
from qdq_workbench.graph.op_kinds import reads_infinity
from qdq_workbench.spec.quantization_spec import QuantizationSpec


class MaxPoolQDQCase(GraphCase):
    """Quantizes the input of every MaxPooling2D.

    Needed if a pooled tensor meets int8 branches, as in the residual connections of ResNet-v2 and before
    the Concatenate layers of Inception: the runtime can then merge the quantizers of all branches.

    Example:
        >>> import keras
        >>> from qdq_workbench import MaxPoolQDQCase, plan_placement
        >>> image = keras.Input((8, 8, 4), name="image")
        >>> model = keras.Model(image, keras.layers.MaxPooling2D(name="pool")(image))
        >>> plan = plan_placement(model, custom_qdq_cases=[MaxPoolQDQCase()])
        >>> [(p.layer, p.tensor) for p in plan.placements if p.author == "MaxPoolQDQCase"]
        [('pool', 'image')]
    """

    def info(self) -> str:
        """Return a description of the case and its purpose."""
        return (
            "Quantizes the input of MaxPooling2D layers, so that a pooled branch of a residual connection or of a "
            "Concatenate is int8 like the others."
        )

    def case_for_graph(self, graph: ModelGraph, qspec: QuantizationSpec) -> QuantizationSpec:
        """Return an entry for every MaxPooling2D that the user's spec does not name.

        Args:
            graph: The model's graph.
            qspec: The user's specification.
        """
        found = QuantizationSpec()
        for node in graph.nodes:
            named = not check_is_quantizable_by_layer_name(qspec, node.layer)
            if node.is_a("MaxPooling2D") and not named and not reads_infinity(graph, node):
                found.add(node.name, quantize_weight=False)
        return found
