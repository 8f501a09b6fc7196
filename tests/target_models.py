"""Small Keras models with the blocks that targets treat differently."""

import keras
from keras import layers
from small_models import shake


def zoo_net():
    """Residual, squeeze-and-excite, concatenation, every pooling, padding, upsampling, transposed convolution."""
    keras.utils.set_random_seed(1)
    image = keras.Input((16, 16, 3), name="image")
    stem = layers.Conv2D(8, 3, padding="same", use_bias=False, name="stem")(image)
    stem = layers.ReLU(name="stem_relu")(layers.BatchNormalization(name="stem_bn")(stem))
    branch = layers.BatchNormalization(name="c1_bn")(layers.Conv2D(8, 3, padding="same", name="c1")(stem))
    x = layers.ReLU(name="add_relu")(layers.Add(name="add")([branch, stem]))
    left = layers.ReLU(max_value=6.0, name="dw6")(layers.DepthwiseConv2D(3, padding="same", name="dw")(x))
    right = layers.MaxPooling2D(3, strides=1, padding="same", name="pool")(x)
    x = layers.Concatenate(name="concat")([left, right])
    gate = layers.GlobalAveragePooling2D(name="gap", keepdims=True)(x)
    gate = layers.Conv2D(4, 1, activation="relu", name="se1")(gate)
    gate = layers.Activation("sigmoid", name="gate")(layers.Conv2D(16, 1, name="se2")(gate))
    x = layers.AveragePooling2D(2, name="avg")(layers.Multiply(name="scale")([x, gate]))
    x = layers.Conv2D(8, 3, strides=2, name="c2")(layers.ZeroPadding2D(1, name="pad")(x))
    x = layers.UpSampling2D(2, name="up")(layers.LeakyReLU(name="leaky")(x))
    x = layers.Flatten(name="flat")(layers.Conv2DTranspose(4, 2, strides=2, name="ct")(x))
    return shake(keras.Model(image, layers.Softmax(name="soft")(layers.Dense(10, name="head")(x)), name="zoo"))


def inception_net():
    """Three branches of convolutions and pooling that meet in a concatenation, twice."""
    keras.utils.set_random_seed(2)
    image = keras.Input((8, 8, 3), name="image")
    x = layers.Conv2D(6, 3, padding="same", activation="relu", name="stem")(image)
    for block in "ab":
        one = layers.Conv2D(4, 1, activation="relu", name=f"{block}_one")(x)
        three = layers.Conv2D(3, 1, activation="relu", name=f"{block}_squeeze")(x)
        three = layers.Conv2D(4, 3, padding="same", activation="relu", name=f"{block}_three")(three)
        mean = layers.AveragePooling2D(3, strides=1, padding="same", name=f"{block}_mean")(x)
        mean = layers.Conv2D(2, 1, activation="relu", name=f"{block}_project")(mean)
        pool = layers.MaxPooling2D(3, strides=1, padding="same", name=f"{block}_pool")(x)
        x = layers.Concatenate(name=f"{block}_concat")([one, three, mean, pool])
    x = layers.GlobalAveragePooling2D(name="gap")(x)
    return keras.Model(image, layers.Dense(5, name="head")(x), name="inception")


def dense_net():
    """Pre-activation blocks whose inputs are concatenations of everything before them."""
    keras.utils.set_random_seed(3)
    image = keras.Input((8, 8, 3), name="image")
    x = layers.Conv2D(4, 3, padding="same", name="stem")(image)
    for index in range(2):
        h = layers.ReLU(name=f"relu_{index}")(layers.BatchNormalization(name=f"norm_{index}")(x))
        h = layers.Conv2D(4, 3, padding="same", name=f"conv_{index}")(h)
        x = layers.Concatenate(name=f"concat_{index}")([x, h])
    x = layers.AveragePooling2D(2, name="transition")(layers.Conv2D(6, 1, activation="relu", name="mix")(x))
    x = layers.GlobalMaxPooling2D(name="gmp")(x)
    return shake(keras.Model(image, layers.Dense(5, name="head")(x), name="dense_net"))
