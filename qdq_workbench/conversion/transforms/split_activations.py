"""`split_activations`: layers such as `Conv2D(activation="swish")` as the layer and its activation.

Runtimes fuse few activations into their integer kernels, ReLU above all. With any other activation inside a layer, no
tensor of the graph lies between the product and the activation for a Q/DQ pair, so the whole layer stays in float. As
two layers, the first runs on integers and only the activation is computed in float.
"""

from __future__ import annotations

from typing import Any

import keras
from keras import activations, layers, ops

from qdq_workbench.conversion.engine.rebuild import Rebuilder, clone_operation
from qdq_workbench.graph.kinds import WITH_ACTIVATION
from qdq_workbench.graph_builder import Call, bind_graph, keras_layers

# Activations that the integer kernels of every runtime compute.
_STAY_INSIDE = (None, activations.linear, activations.relu, activations.relu6, ops.relu, ops.relu6)


def split_activations(model: keras.Model) -> keras.Model:
    """Return a copy of a float model whose convolutions and dense layers have their activations as separate layers.

    The copy computes the same function. Quantize it instead of the model: Q/DQ pairs can be placed between a layer and
    its activation, which ONNX Runtime and LiteRT need to run the layer on integers. ReLU and ReLU6 stay inside, since
    the integer kernels of every runtime compute them. Subclasses of Keras's layers stay as they are, and so do layers
    that hold an activation with weights, such as PReLU.

    Args:
        model: A built functional or sequential Keras model; it is only read. Nested models are flattened.

    Returns:
        The new model, not compiled. The layers keep their names; the activation of `conv` is called `conv_activation`,
        and so is an output of the model that it computes: losses by name need the new one.

    Raises:
        UnsupportedModelError: If the model's graph cannot be read.
        UnbuiltModelError: If the model does not know its input shape.

    Example:
        >>> image = keras.Input((8, 8, 3), name="image")
        >>> model = keras.Model(image, keras.layers.Conv2D(4, 3, activation="swish", name="conv")(image))
        >>> [layer.name for layer in split_activations(model).layers]
        ['image', 'conv', 'conv_activation']
    """
    return _Splitter(bind_graph(model)).rebuilt(model.name)


class _Splitter(Rebuilder):
    """Rebuilds a float graph with activations as separate layers."""

    def make(self, call: Call) -> Any:
        layer, clone = call.operation, super().make(call)
        if not _is_split(layer):
            return clone
        name = self.free_name(f"{self.names[call.node.layer]}_activation")
        if isinstance(layer.activation, layers.Layer):
            activation = clone_operation(layer.activation, name)
        else:
            activation = layers.Activation(layer.activation, name=name, dtype=layer.dtype_policy)
        # The activity regularizer applies to the result of the layer, which the activation returns now.
        activation.activity_regularizer = layer.activity_regularizer
        self.behind[call.node.layer] = activation
        clone.activation, clone.activity_regularizer = activations.linear, None
        return clone

    def copy_weights(self) -> None:
        super().copy_weights()
        for call in self.bound.calls:
            if call.node.layer in self.behind:
                self.behind[call.node.layer].trainable = call.operation.trainable


def _is_split(layer: Any) -> bool:
    if type(layer) not in keras_layers(WITH_ACTIVATION) or layer.activation in _STAY_INSIDE:
        return False
    # A layer that is not built yet may still get weights.
    return not isinstance(layer.activation, layers.Layer) or (layer.activation.built and not layer.activation.variables)
