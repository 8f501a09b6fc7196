"""The demo's own network: a small residual CNN."""

from __future__ import annotations

from typing import Any

WIDTHS = (16, 32, 64)
# The training has only a few hundred steps; with Keras's 0.99 the moving statistics would lag behind.
_MOMENTUM = 0.9


def residual_network(input_shape: tuple[int, ...], classes: int) -> Any:
    """Return a ResNet-8 that outputs class probabilities: a stem and three residual blocks, about 78,000 parameters."""
    from keras import Input, Model, layers

    inputs = Input(input_shape, name="image")
    x = _conv_bn(inputs, WIDTHS[0], name="stem")
    x = layers.ReLU(name="stem_relu")(x)
    for number, width in enumerate(WIDTHS, start=1):
        x = _residual_block(x, width, stride=1 if number == 1 else 2, name=f"block{number}")
    x = layers.GlobalAveragePooling2D(name="pool")(x)
    outputs = layers.Dense(classes, activation="softmax", name="classes")(x)
    return Model(inputs, outputs, name="residual_cnn")


def _conv_bn(x: Any, width: int, *, name: str, size: int = 3, stride: int = 1) -> Any:
    from keras import layers

    x = layers.Conv2D(width, size, stride, padding="same", use_bias=False, name=f"{name}_conv")(x)
    return layers.BatchNormalization(momentum=_MOMENTUM, name=f"{name}_bn")(x)


def _residual_block(x: Any, width: int, *, stride: int, name: str) -> Any:
    from keras import layers

    shortcut = x
    if stride != 1 or x.shape[-1] != width:
        shortcut = _conv_bn(x, width, size=1, stride=stride, name=f"{name}_shortcut")
    x = _conv_bn(x, width, stride=stride, name=f"{name}_a")
    x = layers.ReLU(name=f"{name}_a_relu")(x)
    x = _conv_bn(x, width, name=f"{name}_b")
    x = layers.Add(name=f"{name}_add")([x, shortcut])
    return layers.ReLU(name=f"{name}_relu")(x)
