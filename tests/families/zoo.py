"""One small model part per layer family, and what must be quantized of it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
from keras import layers


@keras.saving.register_keras_serializable(package="families")
class Mixing(layers.Layer):
    """A layer of a user's own: two matrices under names that Keras does not use, and one that nobody named."""

    def build(self, input_shape):
        self.mix = self.add_weight(name="mix", shape=(input_shape[-1], 3))
        self.unnamed = self.add_weight(shape=(3, 3))
        self.shift = self.add_weight(name="shift", shape=(3,))

    def call(self, inputs):
        return keras.ops.matmul(keras.ops.matmul(inputs, self.mix), self.unnamed) + self.shift


@dataclasses.dataclass(frozen=True)
class Family:
    """A layer family.

    Args:
        name: Name of the layer in the model.
        shapes: Shapes of its inputs, without the batch.
        make: Computes the outputs from the layer's name and the inputs.
        weights: The weights that are quantized, each with the axis of its scales.
        inputs: How many of its inputs have a pair.
        named: Whether it is quantized only where a spec names it.
        dtype: Type of its inputs; integers are drawn from 0 to 4.
    """

    name: str
    shapes: tuple[tuple[int | None, ...], ...]
    make: Callable[..., Any]
    weights: dict[str, int | None] = dataclasses.field(default_factory=dict)
    inputs: int = 1
    named: bool = False
    dtype: str = "float32"

    def __str__(self) -> str:
        return self.name

    def tensors(self):
        """Return new symbolic inputs."""
        return [
            keras.Input(shape, name=f"{self.name}_{index}", dtype=self.dtype) for index, shape in enumerate(self.shapes)
        ]

    def samples(self, count=4, unknown=5):
        """Draw inputs; axes of open size get `unknown`."""
        generator = np.random.default_rng(len(self.name))
        shapes = [[count, *(unknown if size is None else size for size in shape)] for shape in self.shapes]
        if "int" in self.dtype:
            return [generator.integers(0, 5, shape).astype(self.dtype) for shape in shapes]
        return [generator.normal(size=shape).astype(self.dtype) for shape in shapes]


def _one(name, shape, layer, weights=None, **fields):
    return Family(name, (shape,), lambda label, x: layer(label)(x), weights or {}, **fields)


def _kernel(name, shape, layer, axis, **fields):
    return _one(name, shape, layer, {"kernel": axis}, **fields)


def _cell(prefix=""):
    return {f"{prefix}kernel": 1, f"{prefix}recurrent_kernel": 1}


def _attention(axis):
    projections = {f"{name}/kernel": axis for name in ("query", "key", "value")}
    return {**projections, "attention_output/kernel": 2}


IMAGE, LINE, STEPS, BOX = (6, 6, 4), (8, 4), (5, 4), (4, 4, 4, 2)
BOTH_WAYS = {**_cell("forward_layer/cell/"), **_cell("backward_layer/cell/")}

FAMILIES = [
    _kernel("conv1d", LINE, lambda n: layers.Conv1D(3, 3, name=n), 2),
    _kernel("conv2d", IMAGE, lambda n: layers.Conv2D(3, 3, padding="same", activation="relu", name=n), 3),
    _kernel("conv3d", BOX, lambda n: layers.Conv3D(3, 2, name=n), 4),
    _kernel("conv2d_groups", IMAGE, lambda n: layers.Conv2D(6, 3, groups=2, name=n), 3),
    _kernel("conv2d_dilated", IMAGE, lambda n: layers.Conv2D(3, 3, dilation_rate=2, name=n), 3),
    _kernel("depthwise1d", LINE, lambda n: layers.DepthwiseConv1D(3, name=n), 1),
    _kernel("depthwise2d", IMAGE, lambda n: layers.DepthwiseConv2D(3, depth_multiplier=2, name=n), 2),
    _one(
        "separable1d",
        LINE,
        lambda n: layers.SeparableConv1D(3, 3, name=n),
        {"depthwise_kernel": 1, "pointwise_kernel": 2},
    ),
    _one(
        "separable2d",
        IMAGE,
        lambda n: layers.SeparableConv2D(3, 3, name=n),
        {"depthwise_kernel": 2, "pointwise_kernel": 3},
    ),
    _kernel("conv1d_transpose", LINE, lambda n: layers.Conv1DTranspose(3, 3, strides=2, name=n), 1),
    _kernel("conv2d_transpose", IMAGE, lambda n: layers.Conv2DTranspose(3, 3, strides=2, name=n), 2),
    _kernel("conv3d_transpose", BOX, lambda n: layers.Conv3DTranspose(3, 2, name=n), 3),
    _kernel("dense", (4,), lambda n: layers.Dense(3, activation="tanh", name=n), 1),
    _kernel("dense_on_a_sequence", (None, 4), lambda n: layers.Dense(3, name=n), 1),
    _kernel("einsum", STEPS, lambda n: layers.EinsumDense("abc,cde->abde", (None, 2, 3), bias_axes="de", name=n), 2),
    _kernel(
        "einsum_turned",
        (None, 4),
        lambda n: layers.EinsumDense("abc,cde->adbe", (2, None, 3), bias_axes="de", name=n),
        2,
    ),
    _one(
        "embedding",
        (6,),
        lambda n: layers.Embedding(5, 4, name=n),
        {"embeddings": None},
        inputs=0,
        dtype="int32",
    ),
    Family(
        "attention",
        (STEPS,),
        lambda n, x: layers.MultiHeadAttention(2, 3, name=n)(query=x, value=x, use_causal_mask=True),
        _attention(2),
    ),
    Family(
        "attention_on_another",
        (STEPS, (None, 4)),
        lambda n, x, y: layers.MultiHeadAttention(2, 3, name=n)(x, y, key=y, return_attention_scores=True),
        _attention(2),
        inputs=2,
    ),
    Family(
        "grouped_attention",
        ((None, 8),),
        lambda n, x: layers.GroupQueryAttention(4, 4, 2, name=n)(x, x),
        _attention(2),
    ),
    _one("lstm", STEPS, lambda n: layers.LSTM(3, name=n), _cell("cell/")),
    _one(
        "lstm_backwards",
        STEPS,
        lambda n: layers.LSTM(3, return_sequences=True, go_backwards=True, name=n),
        _cell("cell/"),
    ),
    Family(
        "lstm_with_states",
        ((None, 4), (3,), (3,)),
        lambda n, x, h, c: layers.LSTM(3, return_state=True, return_sequences=True, name=n)(x, initial_state=[h, c]),
        _cell("cell/"),
    ),
    _one("gru", (None, 4), lambda n: layers.GRU(3, return_sequences=True, name=n), _cell("cell/")),
    _one(
        "gru_reset_before",
        STEPS,
        lambda n: layers.GRU(
            3, reset_after=False, activation="relu", recurrent_activation="hard_sigmoid", use_bias=False, name=n
        ),
        _cell("cell/"),
    ),
    _one("simple_rnn", STEPS, lambda n: layers.SimpleRNN(3, name=n), _cell("cell/")),
    _one(
        "rnn_of_cells",
        STEPS,
        lambda n: layers.RNN([layers.LSTMCell(3), layers.GRUCell(2)], name=n),
        {**_cell("cell/cells/0/"), **_cell("cell/cells/1/")},
    ),
    _one("conv_lstm", (3, 5, 5, 2), lambda n: layers.ConvLSTM2D(2, 3, name=n), dict.fromkeys(_cell("cell/"), 3)),
    _one("bidirectional", STEPS, lambda n: layers.Bidirectional(layers.LSTM(3), name=n), BOTH_WAYS),
    _one(
        "bidirectional_in_parts",
        (None, 4),
        lambda n: layers.Bidirectional(
            layers.GRU(3, return_sequences=True, return_state=True), merge_mode=None, name=n
        ),
        BOTH_WAYS,
    ),
    _one(
        "bidirectional_mean",
        STEPS,
        lambda n: layers.Bidirectional(layers.SimpleRNN(3, return_sequences=True), merge_mode="ave", name=n),
        BOTH_WAYS,
    ),
    _one(
        "time_distributed",
        (3, 5, 5, 2),
        lambda n: layers.TimeDistributed(layers.Conv2D(3, 3), name=n),
        {"layer/kernel": 3},
    ),
    _one(
        "time_distributed_open",
        (None, 4),
        lambda n: layers.TimeDistributed(layers.Dense(3), name=n),
        {"layer/kernel": 1},
    ),
    _one("spectral", (4,), lambda n: layers.SpectralNormalization(layers.Dense(3), name=n), {"layer/kernel": 1}),
    _one("prelu", IMAGE, lambda n: layers.PReLU(shared_axes=[1, 2], name=n), {"alpha": None}, named=True),
    _one("user_layer", (4,), lambda n: Mixing(name=n), {"mix": None, "unnamed": None}, named=True),
    _one("batch_norm", IMAGE, lambda n: layers.BatchNormalization(name=n), named=True),
    _one("layer_norm", STEPS, lambda n: layers.LayerNormalization(axis=[1, 2], name=n), named=True),
    _one("group_norm", IMAGE, lambda n: layers.GroupNormalization(2, name=n), named=True),
    _one("average_pool", IMAGE, lambda n: layers.AveragePooling2D(2, name=n)),
    _one("average_pool1d", LINE, lambda n: layers.AveragePooling1D(2, name=n)),
    _one("global_average", BOX, lambda n: layers.GlobalAveragePooling3D(name=n)),
    _one("max_pool", IMAGE, lambda n: layers.MaxPooling2D(2, name=n), named=True),
    _one("global_max", LINE, lambda n: layers.GlobalMaxPooling1D(name=n), named=True),
    Family("add", (IMAGE, IMAGE), lambda n, x, y: layers.Add(name=n)([x, y]), inputs=2, named=True),
    Family("multiply", (IMAGE, IMAGE), lambda n, x, y: layers.Multiply(name=n)([x, y]), inputs=2, named=True),
    Family("maximum", (STEPS, STEPS), lambda n, x, y: layers.Maximum(name=n)([x, y]), inputs=2, named=True),
    Family("concatenate", (IMAGE, IMAGE), lambda n, x, y: layers.Concatenate(name=n)([x, y]), inputs=2, named=True),
    Family("dot", (STEPS, STEPS), lambda n, x, y: layers.Dot(2, name=n)([x, y]), inputs=2, named=True),
    _one("resizing", IMAGE, lambda n: layers.Resizing(8, 8, name=n), named=True),
    _one("upsampling", IMAGE, lambda n: layers.UpSampling2D(2, name=n), named=True),
    _one("padding", IMAGE, lambda n: layers.ZeroPadding2D(1, name=n), named=True),
    _one("cropping", IMAGE, lambda n: layers.Cropping2D(1, name=n), named=True),
    _one("leaky_relu", IMAGE, lambda n: layers.LeakyReLU(name=n), named=True),
    _one("activation", IMAGE, lambda n: layers.Activation("silu", name=n), named=True),
    _one("softmax", (4,), lambda n: layers.Softmax(name=n), named=True),
]
