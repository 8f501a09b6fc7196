"""Comparing an explanation with what ONNX Runtime makes of the exported file, node by node."""

import keras
import onnx
from agreement import statuses
from keras import layers

import qdq_workbench as qdq


def compare(q_model, path):
    """Export a model; return how many statuses were compared, and those that differ from the optimized graph."""
    qdq.export_onnx(q_model, path)
    compared, differing = statuses.compare(qdq.explain(q_model.plan), onnx.load(path), path.parent)
    assert compared > 0, "no layer of the plan was found in its file"
    return compared, differing


def branching_net():
    """Activations of every kind, a gate, pooling, and a branch behind a concatenation."""
    image = keras.Input((8, 8, 4), name="image")
    left = layers.DepthwiseConv2D(3, padding="same", name="depthwise")(image)
    left = layers.ReLU(max_value=6.0, name="relu6")(left)
    right = layers.MaxPooling2D(3, strides=1, padding="same", name="pool")(image)
    right = layers.Conv2D(4, 1, activation="silu", name="silu_conv")(right)
    joined = layers.Concatenate(name="concat")([left, right])
    scaled = layers.Multiply(name="scale")([joined, layers.Conv2D(8, 1, name="gate")(joined)])
    mean = layers.AveragePooling2D(2, name="mean")(scaled)
    return keras.Model(image, layers.Dense(3, name="head")(layers.Flatten(name="flatten")(mean)), name="branching")


def sequence_net():
    """Matrix products over sequences, in one dimension and by einsum."""
    keras.utils.set_random_seed(4)
    tokens = keras.Input((8, 6), name="tokens")
    x = layers.Conv1D(6, 3, padding="same", activation="relu", name="conv")(tokens)
    x = layers.EinsumDense("abc,cd->abd", output_shape=(None, 6), bias_axes="d", name="einsum")(x)
    y = layers.Dense(6, activation="tanh", name="wide")(x)
    x = layers.Add(name="add")([x, y])
    x = layers.AveragePooling1D(2, name="mean")(x)
    x = layers.GlobalAveragePooling1D(name="gap")(layers.LeakyReLU(name="leaky")(x))
    return keras.Model(tokens, layers.Softmax(name="soft")(layers.Dense(3, name="head")(x)), name="sequence")
