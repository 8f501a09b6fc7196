"""The networks that peers measure, for Keras 2 and Keras 3 alike: the module is an argument."""

from typing import Any


def resnet8(keras: Any) -> Any:
    """MLPerf Tiny's ResNet-8 for images of 32x32."""
    layers = keras.layers
    image = keras.Input((32, 32, 3))
    x = layers.ReLU()(layers.BatchNormalization()(layers.Conv2D(16, 3, padding="same")(image)))
    for filters, stride in ((16, 1), (32, 2), (64, 2)):
        y = layers.Conv2D(filters, 3, strides=stride, padding="same")(x)
        y = layers.ReLU()(layers.BatchNormalization()(y))
        y = layers.BatchNormalization()(layers.Conv2D(filters, 3, padding="same")(y))
        if stride > 1:
            x = layers.Conv2D(filters, 1, strides=stride, padding="same")(x)
        x = layers.ReLU()(layers.Add()([y, x]))
    x = layers.Flatten()(layers.AveragePooling2D(8)(x))
    return keras.Model(image, layers.Dense(10, activation="softmax")(x))


def build(keras: Any, name: str) -> Any:
    """Return a network by its name, without trained weights.

    Args:
        keras: The module `keras`, `tf_keras` or `tf.keras`.
        name: "resnet8", "mobilenet_v2" or "resnet50".
    """
    if name == "resnet8":
        return resnet8(keras)
    application = {"mobilenet_v2": "MobileNetV2", "resnet50": "ResNet50"}[name]
    return getattr(keras.applications, application)(weights=None, input_shape=(64, 64, 3), classes=10)
