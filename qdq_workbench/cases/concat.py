"""Concatenations: all branches on one scale, so that joining them is copying."""

from __future__ import annotations

from qdq_workbench.cases.base import GraphCase, check_is_quantizable_by_layer_name
from qdq_workbench.graph.model_graph import ModelGraph
from qdq_workbench.spec.quantization_spec import QuantizationSpec


class ConcatQDQCase(GraphCase):
    """Quantizes every input of a Concatenate; the inputs share one scale, and so does the output if it has a pair.

    A runtime joins integers of one scale by copying. With different scales it would first requantize every branch, or
    join in float. The shared range is the union of the branches' ranges. For ONNX Runtime, branches after a ReLU and
    branches with negative values keep their own scales, because the ReLU would otherwise not be fused.

    Source: NVIDIA TensorRT documentation, "Explicit Quantization", and the LiteRT 8-bit quantization specification.

    Example:
        >>> import keras
        >>> from qdq_workbench import ConcatQDQCase, plan_placement
        >>> image = keras.Input((8, 8, 4), name="image")
        >>> conv = keras.layers.Conv2D(4, 1, name="conv")(image)
        >>> model = keras.Model(image, keras.layers.Concatenate(name="join")([conv, image]))
        >>> plan = plan_placement(model, custom_qdq_cases=[ConcatQDQCase()])
        >>> [(p.layer, p.tensor) for p in plan.placements if p.author == "ConcatQDQCase"]
        [('join', 'conv'), ('join', 'image')]
    """

    def info(self) -> str:
        """Return a description of the case and its purpose."""
        return (
            "Quantizes all inputs of Concatenate layers with one shared scale, so that the runtime joins integers by "
            "copying them instead of requantizing every branch."
        )

    def case_for_graph(self, graph: ModelGraph, qspec: QuantizationSpec) -> QuantizationSpec:
        """Return an entry for every Concatenate of floating-point tensors that the user's spec does not name.

        Args:
            graph: The model's graph.
            qspec: The user's specification.
        """
        found = QuantizationSpec()
        for node in graph.nodes:
            floats = [index for index, tensor in enumerate(node.inputs) if graph.tensors[tensor].is_float]
            if not node.is_a("Concatenate") or len(floats) < len(node.inputs) or not floats:
                continue
            if check_is_quantizable_by_layer_name(qspec, node.layer):
                found.add(node.name, quantize_weight=False)
        return found
