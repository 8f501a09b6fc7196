"""Batch normalizations that are not folded into a convolution."""

from __future__ import annotations

from qdq_workbench.cases.base import GraphCase, check_is_quantizable_by_layer_name
from qdq_workbench.graph.model_graph import ModelGraph
from qdq_workbench.graph.op_kinds import is_convolution
from qdq_workbench.spec.quantization_spec import QuantizationSpec


class BNQDQCase(GraphCase):
    """Quantizes the input of every BatchNormalization that does not directly follow a convolution.

    A BatchNormalization after a convolution is folded into it; one before it, as in the pre-activation
    blocks of ResNet-v2, is computed by itself and needs an int8 input to stay in the chain of int8 tensors.

    Example:
        >>> import keras
        >>> from qdq_workbench import BNQDQCase, plan_placement
        >>> image = keras.Input((8, 8, 4), name="image")
        >>> model = keras.Model(image, keras.layers.BatchNormalization(name="norm")(image))
        >>> plan = plan_placement(model, custom_qdq_cases=[BNQDQCase()])
        >>> [(p.layer, p.tensor) for p in plan.placements if p.author == "BNQDQCase"]
        [('norm', 'image')]
    """

    def info(self) -> str:
        """Return a description of the case and its purpose."""
        return (
            "Quantizes the input of BatchNormalization layers that do not follow a convolution, as in the "
            "BN-ReLU-Conv blocks of ResNet-v2; those behind a convolution are folded into it and get no pair."
        )

    def case_for_graph(self, graph: ModelGraph, qspec: QuantizationSpec) -> QuantizationSpec:
        """Return an entry for every BatchNormalization not after a convolution that the user's spec does not name.

        Args:
            graph: The model's graph.
            qspec: The user's specification.
        """
        found = QuantizationSpec()
        for node in graph.nodes:
            if node.is_operation or not node.is_a("BatchNormalization"):
                continue
            if is_convolution(graph.producer(node.inputs[0])):
                continue
            if check_is_quantizable_by_layer_name(qspec, node.layer):
                found.add(node.name, quantize_weight=False)
        return found
