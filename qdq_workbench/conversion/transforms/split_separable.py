"""`split_separable_convolutions`: a separable convolution as the two layers that it consists of.

A SeparableConv2D is one Keras layer and two convolutions. No tensor of the graph lies between them for a Q/DQ pair,
and without one no runtime computes them on integers. As two layers they are quantized like any others.
"""

from __future__ import annotations

from typing import Any

import keras
from keras import layers

from qdq_workbench.conversion.engine.rebuild import Rebuilder
from qdq_workbench.graph_builder import Call, bind_graph

_HALVES = {
    layers.SeparableConv1D: (layers.DepthwiseConv1D, layers.Conv1D),
    layers.SeparableConv2D: (layers.DepthwiseConv2D, layers.Conv2D),
}
_OF_THE_KERNEL = ("initializer", "regularizer", "constraint")
_OF_THE_RESULT = (
    "use_bias", "activation", "bias_initializer", "bias_regularizer", "bias_constraint", "activity_regularizer",
)  # fmt: skip


def split_separable_convolutions(model: keras.Model) -> keras.Model:
    """Return a copy of a float model whose separable convolutions are a depthwise and a pointwise layer each.

    The copy computes the same function, and its halves are quantized with a Q/DQ pair between them, so that they can
    run on integers. Quantize the copy instead of the model.

    Args:
        model: A built functional or sequential Keras model; it is only read. Nested models are flattened.

    Returns:
        The new model, not compiled. The halves of a layer `sep` are called `sep_depthwise` and `sep_pointwise`.

    Raises:
        UnsupportedModelError: If the model's graph cannot be read.
        UnbuiltModelError: If the model does not know its input shape.

    Example:
        >>> image = keras.Input((8, 8, 3), name="image")
        >>> model = keras.Model(image, keras.layers.SeparableConv2D(4, 3, name="sep")(image))
        >>> [layer.name for layer in split_separable_convolutions(model).layers]
        ['image', 'sep_depthwise', 'sep_pointwise']
    """
    builder = _Splitter(bind_graph(model))
    return builder.rebuilt(model.name)


class _Splitter(Rebuilder):
    """Rebuilds a float graph with separable convolutions in two halves."""

    def __init__(self, bound: Any) -> None:
        super().__init__(bound)
        self._halves: dict[str, tuple[Any, Any, Any]] = {}

    def compute(self, call: Call, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if type(call.operation) not in _HALVES:
            return super().compute(call, args, kwargs)
        path = call.node.layer
        if path not in self._halves:
            names = [self.free_name(f"{self.names[path]}_{half}") for half in ("depthwise", "pointwise")]
            self._halves[path] = (call.operation, *_halves_of(call.operation, names))
        _, depthwise, pointwise = self._halves[path]
        return pointwise(depthwise(args[0]))

    def copy_weights(self) -> None:
        super().copy_weights()
        for source, depthwise, pointwise in self._halves.values():
            depthwise.kernel.assign(source.depthwise_kernel)
            pointwise.kernel.assign(source.pointwise_kernel)
            if source.use_bias:
                pointwise.bias.assign(source.bias)
            depthwise.trainable = pointwise.trainable = source.trainable


def _halves_of(layer: Any, names: list[str]) -> tuple[Any, Any]:
    config = layer.get_config()
    depthwise_class, pointwise_class = _HALVES[type(layer)]
    shared = {key: config[key] for key in ("data_format", "dtype")}
    window = {key: config[key] for key in ("kernel_size", "strides", "padding", "dilation_rate", "depth_multiplier")}
    first = {f"depthwise_{key}": config[f"depthwise_{key}"] for key in _OF_THE_KERNEL}
    second = {f"kernel_{key}": config[f"pointwise_{key}"] for key in _OF_THE_KERNEL}
    second |= {key: config[key] for key in ("filters", *_OF_THE_RESULT)}
    depthwise = depthwise_class.from_config({**shared, **window, **first, "use_bias": False, "name": names[0]})
    return depthwise, pointwise_class.from_config({**shared, **second, "kernel_size": 1, "name": names[1]})
