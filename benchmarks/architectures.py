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


def mobilenet_v2(keras: Any, width: float = 0.5) -> Any:
    """MobileNetV2 for images of 32x32, whose stem keeps the size (Sandler et al. 2018, arXiv:1801.04381)."""
    layers = keras.layers

    def channels(count: float) -> int:
        return max(8, int(count * width + 4) // 8 * 8)

    def bottleneck(x: Any, name: str, expansion: int, count: int, stride: int) -> Any:
        y = x
        if expansion > 1:
            y = layers.Conv2D(expansion * x.shape[-1], 1, use_bias=False, name=f"{name}_expand")(y)
            y = layers.ReLU(6, name=f"{name}_expand_relu")(layers.BatchNormalization(name=f"{name}_expand_norm")(y))
        y = layers.DepthwiseConv2D(3, stride, padding="same", use_bias=False, name=f"{name}_depthwise")(y)
        y = layers.ReLU(6, name=f"{name}_depthwise_relu")(layers.BatchNormalization(name=f"{name}_depthwise_norm")(y))
        y = layers.Conv2D(count, 1, use_bias=False, name=f"{name}_project")(y)
        y = layers.BatchNormalization(name=f"{name}_project_norm")(y)
        return layers.Add(name=f"{name}_sum")([x, y]) if x.shape == y.shape else y

    image = keras.Input((32, 32, 3), name="image")
    x = layers.Conv2D(channels(32), 3, padding="same", use_bias=False, name="stem")(image)
    x = layers.ReLU(6, name="stem_relu")(layers.BatchNormalization(name="stem_norm")(x))
    stages = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1))
    for stage, (expansion, count, repeats, stride) in enumerate(stages):
        for block in range(repeats):
            first = stride if block == 0 else 1
            x = bottleneck(x, f"stage{stage}_block{block}", expansion, channels(count), first)
    x = layers.Conv2D(640, 1, use_bias=False, name="last")(x)
    x = layers.ReLU(6, name="last_relu")(layers.BatchNormalization(name="last_norm")(x))
    x = layers.GlobalAveragePooling2D(name="pool")(x)
    return keras.Model(image, layers.Dense(10, activation="softmax", name="classes")(x), name="mobilenet_v2")


def vit(keras: Any, depth: int = 6, size: int = 128, heads: int = 4) -> Any:
    """A vision transformer for images of 32x32 (Dosovitskiy et al. 2021, arXiv:2010.11929).

    Positions come from a depthwise convolution over the patches of 4x4 (Chu et al. 2021, arXiv:2102.10882).
    """
    layers = keras.layers
    image = keras.Input((32, 32, 3), name="image")
    x = layers.Conv2D(size, 4, 4, use_bias=False, name="patches")(image)
    x = layers.BatchNormalization(name="patches_norm")(x)
    x = layers.Add(name="placed")([x, layers.DepthwiseConv2D(3, padding="same", name="positions")(x)])
    x = layers.Reshape((64, size), name="tokens")(x)
    for block in range(depth):
        y = layers.LayerNormalization(epsilon=1e-6, name=f"block{block}_norm1")(x)
        y = layers.MultiHeadAttention(heads, size // heads, name=f"block{block}_attention")(y, y)
        x = layers.Add(name=f"block{block}_sum1")([x, y])
        y = layers.LayerNormalization(epsilon=1e-6, name=f"block{block}_norm2")(x)
        y = layers.Dense(2 * size, activation="gelu", name=f"block{block}_wide")(y)
        y = layers.Dense(size, name=f"block{block}_narrow")(y)
        x = layers.Add(name=f"block{block}_sum2")([x, y])
    x = layers.LayerNormalization(epsilon=1e-6, name="last_norm")(x)
    x = layers.GlobalAveragePooling1D(name="pool")(x)
    return keras.Model(image, layers.Dense(10, activation="softmax", name="classes")(x), name="vit")


def mobilenet_v3(keras: Any, size: int = 224) -> Any:
    """MobileNetV3Small of keras.applications, with ten classes (Howard et al. 2019, arXiv:1905.02244)."""
    model = keras.applications.MobileNetV3Small(input_shape=(size, size, 3), weights=None, classes=10)
    for layer in model.layers:
        if isinstance(layer, keras.layers.BatchNormalization):
            layer.momentum = 0.98  # instead of 0.999, which would need many more steps than are trained here
    return model


def ds_cnn(keras: Any, size: int = 64) -> Any:
    """MLPerf Tiny's network for keyword spotting (Zhang et al. 2017, arXiv:1711.07128): 49 frames of 10 bands."""
    layers = keras.layers
    sound = keras.Input((49, 10, 1), name="sound")
    x = layers.Conv2D(size, (10, 4), 2, padding="same", name="first")(sound)
    x = layers.ReLU(name="first_relu")(layers.BatchNormalization(name="first_norm")(x))
    for block in range(4):
        x = layers.DepthwiseConv2D(3, padding="same", name=f"block{block}_depthwise")(x)
        x = layers.BatchNormalization(name=f"block{block}_depthwise_norm")(x)
        x = layers.Conv2D(size, 1, name=f"block{block}_pointwise")(layers.ReLU(name=f"block{block}_relu1")(x))
        x = layers.BatchNormalization(name=f"block{block}_pointwise_norm")(x)
        x = layers.ReLU(name=f"block{block}_relu2")(x)
    x = layers.GlobalAveragePooling2D(name="pool")(x)
    return keras.Model(sound, layers.Dense(10, activation="softmax", name="classes")(x), name="ds_cnn")
