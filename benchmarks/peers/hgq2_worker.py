"""HGQ2: ResNet-8 of its own layers with their default quantizers; it has no function that converts a model."""

import keras
from architectures import build
from hgq.layers import QAdd, QConv2D, QDense
from serve import Calls, compiled, serve, step_of


def quantized_resnet8() -> keras.Model:
    """Return ResNet-8 of HGQ2's layers."""
    layers = keras.layers
    image = keras.Input((32, 32, 3))
    x = layers.ReLU()(layers.BatchNormalization()(QConv2D(16, 3, padding="same")(image)))
    for filters, stride in ((16, 1), (32, 2), (64, 2)):
        y = QConv2D(filters, 3, strides=stride, padding="same")(x)
        y = layers.ReLU()(layers.BatchNormalization()(y))
        y = layers.BatchNormalization()(QConv2D(filters, 3, padding="same")(y))
        if stride > 1:
            x = QConv2D(filters, 1, strides=stride, padding="same")(x)
        x = layers.ReLU()(QAdd()([y, x]))
    x = layers.Flatten()(layers.AveragePooling2D(8)(x))
    return keras.Model(image, layers.Softmax()(QDense(10)(x)))


def prepare(name: str, batch: int) -> tuple[Calls, Calls]:
    """Return what is measured."""
    if name != "resnet8":
        raise NotImplementedError("HGQ2 converts no models; only ResNet-8 was written with its layers")
    source = build(keras, name)
    models = {
        "float": source,
        "float again": keras.models.clone_model(source),
        "quantized": quantized_resnet8(),
    }
    return {label: step_of(compiled(keras, model), batch) for label, model in models.items()}, {}


serve(prepare)
