"""Cases for families of networks, combined from the single cases."""

from __future__ import annotations

from qdq_workbench.cases.base import GraphCase, check_is_quantizable_by_layer_name
from qdq_workbench.cases.batch_norm import BNQDQCase
from qdq_workbench.cases.pooling import MaxPoolQDQCase
from qdq_workbench.cases.residual import ResidualConnectionQDQCase
from qdq_workbench.graph.model_graph import ModelGraph
from qdq_workbench.spec.quantization_spec import QuantizationSpec


class _NetworkCase(GraphCase):
    """Several cases that are applied together."""

    network = ""
    parts: tuple[type[GraphCase], ...] = ()

    def info(self) -> str:
        """Return a description of the case and its purpose."""
        ideas = " ".join(part().info() for part in self.parts)
        return f"For {self.network}: {ideas}"

    def case_for_graph(self, graph: ModelGraph, qspec: QuantizationSpec) -> QuantizationSpec:
        """Return the entries of all parts, in their order."""
        found = QuantizationSpec()
        for part in self.parts:
            found.layers.extend(part().case_for_graph(graph, qspec).layers)
        return found


class ResNetV1QDQCase(_NetworkCase):
    """ResNet-v1: quantizes the skip branch of residual connections.

    Example:
        >>> import keras
        >>> from qdq_workbench import ResNetV1QDQCase, plan_placement
        >>> image = keras.Input((8, 8, 4), name="image")
        >>> conv = keras.layers.Conv2D(4, 1, name="conv")(image)
        >>> model = keras.Model(image, keras.layers.Add(name="add")([conv, image]))
        >>> plan = plan_placement(model, custom_qdq_cases=[ResNetV1QDQCase()])
        >>> [(p.layer, p.tensor) for p in plan.placements if p.author == "ResNetV1QDQCase"]
        [('add', 'image')]
    """

    network = "ResNet-v1"
    parts = (ResidualConnectionQDQCase,)


class ResNetV2QDQCase(_NetworkCase):
    """ResNet-v2: residual connections, BatchNormalization without a convolution before it, and MaxPooling2D.

    Example:
        >>> import keras
        >>> from qdq_workbench import ResNetV2QDQCase, plan_placement
        >>> image = keras.Input((8, 8, 4), name="image")
        >>> norm = keras.layers.BatchNormalization(name="norm")(image)
        >>> model = keras.Model(image, keras.layers.MaxPooling2D(name="pool")(norm))
        >>> plan = plan_placement(model, custom_qdq_cases=[ResNetV2QDQCase()])
        >>> [(p.layer, p.tensor) for p in plan.placements if p.author == "ResNetV2QDQCase"]
        [('norm', 'image'), ('pool', 'norm')]
    """

    network = "ResNet-v2"
    parts = (ResidualConnectionQDQCase, BNQDQCase, MaxPoolQDQCase)


class MobileNetQDQCase(_NetworkCase):
    """MobileNet: quantizes the skip branch of residual connections.

    Example:
        >>> import keras
        >>> from qdq_workbench import MobileNetQDQCase, plan_placement
        >>> image = keras.Input((8, 8, 4), name="image")
        >>> conv = keras.layers.Conv2D(4, 1, name="conv")(image)
        >>> model = keras.Model(image, keras.layers.Add(name="add")([conv, image]))
        >>> plan = plan_placement(model, custom_qdq_cases=[MobileNetQDQCase()])
        >>> [(p.layer, p.tensor) for p in plan.placements if p.author == "MobileNetQDQCase"]
        [('add', 'image')]
    """

    network = "MobileNet"
    parts = (ResidualConnectionQDQCase,)


class InceptionQDQCase(_NetworkCase):
    """Inception: quantizes MaxPooling2D, so that all branches of a Concatenate are int8.

    Example:
        >>> import keras
        >>> from qdq_workbench import InceptionQDQCase, plan_placement
        >>> image = keras.Input((8, 8, 4), name="image")
        >>> model = keras.Model(image, keras.layers.MaxPooling2D(name="pool")(image))
        >>> plan = plan_placement(model, custom_qdq_cases=[InceptionQDQCase()])
        >>> [(p.layer, p.tensor) for p in plan.placements if p.author == "InceptionQDQCase"]
        [('pool', 'image')]
    """

    network = "Inception"
    parts = (MaxPoolQDQCase,)


class EfficientNetQDQCase(_NetworkCase):
    """EfficientNet: residual connections, and both inputs of the Multiply of squeeze-and-excite blocks.

    Example:
        >>> import keras
        >>> from qdq_workbench import EfficientNetQDQCase, plan_placement
        >>> image = keras.Input((8, 8, 4), name="image")
        >>> gate = keras.layers.Conv2D(4, 1, activation="sigmoid", name="gate")(image)
        >>> model = keras.Model(image, keras.layers.Multiply(name="scale")([image, gate]))
        >>> plan = plan_placement(model, custom_qdq_cases=[EfficientNetQDQCase()])
        >>> [(p.layer, p.tensor) for p in plan.placements if p.author == "EfficientNetQDQCase"]
        [('scale', 'image'), ('scale', 'gate')]
    """

    network = "EfficientNet"
    parts = (ResidualConnectionQDQCase,)

    def info(self) -> str:
        """Return a description of the case and its purpose."""
        return f"{super().info()} Quantizes both inputs of Multiply, as in squeeze-and-excite blocks."

    def case_for_graph(self, graph: ModelGraph, qspec: QuantizationSpec) -> QuantizationSpec:
        """Return the entries for residual connections and for every Multiply of two tensors.

        Args:
            graph: The model's graph.
            qspec: The user's specification.
        """
        found = super().case_for_graph(graph, qspec)
        for node in graph.nodes:
            if node.is_a("Multiply") and len(node.inputs) > 1 and check_is_quantizable_by_layer_name(qspec, node.layer):
                found.add(node.name, quantize_weight=False, quantization_index=list(range(len(node.inputs))))
        return found
