"""Residual connections: quantize the skip branch only, so that the runtime fuses Conv + Add."""

from __future__ import annotations

from qdq_workbench.cases.base import GraphCase, check_is_quantizable_by_layer_name
from qdq_workbench.graph.model_graph import ModelGraph
from qdq_workbench.graph.op_kinds import ends_in_convolution
from qdq_workbench.spec.quantization_spec import QuantizationSpec


class ResidualConnectionQDQCase(GraphCase):
    """Quantizes every input of an Add except one that is the result of a convolution.

    TensorRT computes the sum inside the convolution's kernel if the other operand is int8 and there is no pair
    between the convolution and the Add. The first input whose producers are Conv, Conv-BN, Conv-BN-activation or
    Conv-BN[-activation]-Dropout, and whose tensors have no other reader, stays without a pair; all
    other inputs get one. `x + y` counts as an Add.

    Source: NVIDIA TensorRT documentation, "Explicit Quantization", recommendations for Q/DQ placement.

    Example:
        >>> import keras
        >>> from qdq_workbench import ResidualConnectionQDQCase, plan_placement
        >>> image = keras.Input((8, 8, 4), name="image")
        >>> conv = keras.layers.Conv2D(4, 1, name="conv")(image)
        >>> model = keras.Model(image, keras.layers.Add(name="add")([conv, image]))
        >>> plan = plan_placement(model, custom_qdq_cases=[ResidualConnectionQDQCase()])
        >>> [(p.layer, p.tensor) for p in plan.placements if p.author == "ResidualConnectionQDQCase"]
        [('add', 'image')]
    """

    def info(self) -> str:
        """Return a description of the case and its purpose."""
        return (
            "Quantizes all inputs of an Add except one that comes out of a convolution (Conv, Conv-BN, "
            "Conv-BN-activation, Conv-BN[-activation]-Dropout, read by nobody else), so that TensorRT adds the skip "
            "branch inside the convolution's int8 kernel."
        )

    def case_for_graph(self, graph: ModelGraph, qspec: QuantizationSpec) -> QuantizationSpec:
        """Return an entry for every Add of the graph that the user's spec does not name.

        Args:
            graph: The model's graph.
            qspec: The user's specification.
        """
        found = QuantizationSpec()
        for node in graph.nodes:
            # `x + c` has no other operand that could be quantized.
            is_sum = node.is_a("Add") and len(node.inputs) > 1
            if not is_sum or not check_is_quantizable_by_layer_name(qspec, node.layer):
                continue
            indices = list(range(len(node.inputs)))
            fused = next((i for i in indices if ends_in_convolution(graph, node.inputs[i])), None)
            if fused is not None:
                indices.remove(fused)
            if indices:
                found.add(node.name, quantize_weight=False, quantization_index=indices)
        return found
