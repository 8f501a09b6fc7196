"""Deep networks whose layers take little: what grows with the number of layers is seen, not what weights take."""

import sys

import keras
from keras import layers


def chain(count):
    """Return a model of at least `count` layers: convolutions, normalizations, activations, and some shortcuts."""
    if count > 300:
        sys.setrecursionlimit(100_000)  # Keras itself walks a deep model by recursion
    keras.utils.set_random_seed(0)
    x = image = keras.Input((4, 4, 2), name="image")
    for block in range((count - 4) // 7 + 1):
        y = layers.Conv2D(2, 3, padding="same", name=f"b{block}_conv1")(x)
        y = layers.BatchNormalization(name=f"b{block}_norm1")(y)
        y = layers.ReLU(name=f"b{block}_relu1")(y)
        y = layers.Conv2D(2, 3, padding="same", name=f"b{block}_conv2")(y)
        y = layers.ReLU(name=f"b{block}_relu2")(y)
        y = layers.Add(name=f"b{block}_add")([y, x])
        x = layers.ReLU(name=f"b{block}_out")(y)
    x = layers.GlobalAveragePooling2D(name="pool")(layers.MaxPooling2D(2, name="smaller")(x))
    return keras.Model(image, layers.Dense(3, activation="softmax", name="head")(x), name="chain")
