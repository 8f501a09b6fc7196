"""Models on whose files every pass of the export works, and the module that runs the passes, with their conversions."""

import keras
import numpy as np
from keras import layers, ops
from small_models import samples

import qdq_workbench as qdq


def images():
    """A model on whose file every pass for images works."""
    image = keras.Input((9, 9, 3), name="image")
    x = layers.ZeroPadding2D(1, name="pad")(image)
    x = layers.BatchNormalization(name="bn")(layers.Conv2D(4, 3, name="conv")(x)) + np.arange(4, dtype="float32")
    x = layers.Activation("swish", name="swish")(x)
    x = layers.UpSampling2D(2, name="up")(x)
    x = layers.Resizing(11, 13, interpolation="nearest", name="resized")(x)
    x = layers.Conv2DTranspose(4, 1, strides=3, name="spread")(x)
    x = layers.ReLU(0.5, name="relu")(layers.Conv2D(4, 3, name="last")(x))
    x = layers.GlobalAveragePooling2D(name="pool")(x)
    gate = layers.Reshape((1, 1, 4), name="gate")(x)
    y = layers.Conv2D(2, 1, name="gated")(gate)
    return keras.Model(image, [layers.Dense(3, name="head")(x), y])


def sequences():
    """A model on whose file every pass for sequences works."""
    tokens = keras.Input((8, 6), name="tokens")
    x = layers.Conv1D(6, 3, padding="same", name="conv")(tokens)
    x = layers.Dense(6, name="dense")(x)
    x = layers.EinsumDense("abc,cd->abd", output_shape=(None, 6), name="projection")(x)
    x = ops.einsum("abc,adc->abd", x, tokens)
    return keras.Model(tokens, layers.Reshape((4, 16), name="reshaped")(x))


def transformed():
    """A model on whose file every pass for layers that TensorFlow computes in many steps works."""
    tokens = keras.Input((4, 6), name="tokens")
    x = layers.LayerNormalization(name="norm")(layers.Dense(6, name="dense")(tokens))
    x = layers.Dense(6, activation="gelu", name="gelu")(x)
    x = layers.Activation("hard_silu", name="hard")(x)
    x = layers.RMSNormalization(name="rms")(layers.Dense(6, name="middle")(x))
    return keras.Model(tokens, layers.Dense(3, name="head")(x))


def block():
    """A block with a skip connection, a depthwise convolution and a folded normalization with negative gains."""
    image = keras.Input((8, 8, 3), name="image")
    stem = layers.Conv2D(8, 3, padding="same", use_bias=False, name="stem")(image)
    stem = layers.ReLU(name="skip")(layers.BatchNormalization(name="norm")(stem))
    body = layers.Conv2D(8, 3, padding="same", name="body")(
        layers.DepthwiseConv2D(2, padding="same", name="each")(stem)
    )
    pooled = layers.GlobalAveragePooling2D(name="pool")(layers.Add(name="sum")([body, stem]))
    return keras.Model(image, layers.Dense(4, name="head")(pooled))


def in_blocks():
    """A model with weights in blocks in front of a ReLU."""
    row = keras.Input((16,), name="row")
    x = layers.Dense(16, activation="relu", name="hidden")(row)
    return keras.Model(
        row, layers.Dense(2, name="head")(layers.ReLU(3.0, name="cut")(layers.Dense(16, name="next")(x)))
    )


def partly_float():
    """A model with a float weight between two pairs, the second of which another one follows."""
    row = keras.Input((4,), name="row")
    x = layers.Dense(4, activation="relu", name="float")(layers.Dense(4, name="before")(row))
    x = layers.Dropout(0.5, name="drop")(x)
    return keras.Model(row, layers.Dense(2, bias_initializer="normal", name="head")(x))


def centered():
    """A model of means that are nearly 0, because every image is normalized."""
    image = keras.Input((6, 6, 4), name="image")
    x = layers.GroupNormalization(groups=-1, name="norm")(image)
    return keras.Model(image, layers.Dense(3, name="head")(layers.GlobalAveragePooling2D(name="pool")(x)))


def looping():
    """A model in whose file a loop reads a tensor that was dequantized and moved."""
    frames = keras.Input((3, 5, 5, 2), name="frames")
    return keras.Model(frames, layers.ConvLSTM2D(2, 3, name="conv_lstm")(frames))


def volumes():
    """A model with a grouped convolution in three dimensions."""
    volume = keras.Input((5, 5, 5, 4), name="volume")
    return keras.Model(volume, layers.Conv3D(4, 3, groups=2, name="grouped")(volume))


def quantized(make):
    """Quantize one of these models for ONNX Runtime, and calibrate it; all its biases hold something."""
    keras.utils.set_random_seed(0)
    model = make()
    for weight in model.trainable_weights:  # biases of 0 would be left out
        weight.assign(np.random.default_rng(0).uniform(0.1, 0.5, weight.shape))
    if make is block:
        model.get_layer("norm").gamma.assign(np.linspace(-1, 1, 8))
    if make is centered:
        model.get_layer("norm").beta.assign(np.linspace(-4e-5, 4e-5, 4))
    wished = ("partial", qdq.correction.weights_alone(model, 4, 16)) if make is in_blocks else ("full",)
    if make is partly_float:
        wished = ("full", qdq.QuantizationSpec())
        range_ = {"quantizer": "fixed", "symmetric": False, "init_min": 0.0, "init_max": 1.5}
        config = qdq.LayerQuantizeConfig(output=range_)
        wished[1].add("float", quantize_weight=False, quantize_output=True, quantize_config=config)
    q_model = qdq.quantize_model(model, *wished, target="onnxruntime")
    qdq.calibrate(q_model, samples(model), verbose=False)
    return q_model
