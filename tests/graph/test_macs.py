"""Multiply-accumulate operations, worked out by hand, and one counter for everybody who asks."""

import keras
import numpy as np
import pytest
from keras import layers, ops
from mock_graphs import GraphMaker

import qdq_workbench as qdq
from qdq_workbench.graph.macs import count_macs
from qdq_workbench.graph_builder import build_graph

SEQUENCE, IMAGE, VIDEO = (5, 6), (8, 8, 4), (3, 8, 8, 2)


def inner_model():
    image = keras.Input((8, 8, 2))
    x = layers.MaxPooling2D(2)(layers.Conv2D(3, 3)(image))
    return keras.Model(image, layers.Dense(4)(x))


LAYERS = {
    "convolution": (IMAGE, lambda: layers.Conv2D(3, 3), 36 * 9 * 4 * 3),
    "groups": (IMAGE, lambda: layers.Conv2D(4, 3, padding="same", groups=2), 64 * 4 * 18),
    "dilation": (IMAGE, lambda: layers.Conv2D(3, 3, dilation_rate=2), 16 * 9 * 4 * 3),
    "depthwise": (IMAGE, lambda: layers.DepthwiseConv2D(3, depth_multiplier=2), 36 * 8 * 9),
    "depthwise 1d": (SEQUENCE, lambda: layers.DepthwiseConv1D(3), 3 * 6 * 3),
    "separable": (IMAGE, lambda: layers.SeparableConv2D(5, 3, strides=2, depth_multiplier=2), 9 * (9 * 8 + 8 * 5)),
    "separable 1d": (SEQUENCE, lambda: layers.SeparableConv1D(5, 3), 3 * (3 * 6 + 6 * 5)),
    "transposed": (IMAGE, lambda: layers.Conv2DTranspose(2, 3, strides=2), 64 * 9 * 4 * 2),
    "transposed 1d": (SEQUENCE, lambda: layers.Conv1DTranspose(2, 3, strides=2, padding="same"), 5 * 3 * 6 * 2),
    "transposed 3d": (VIDEO, lambda: layers.Conv3DTranspose(2, 2), 3 * 64 * 8 * 2 * 2),
    "three dimensions": (VIDEO, lambda: layers.Conv3D(2, 2), 2 * 7 * 7 * 8 * 2 * 2),
    "dense": ((6,), lambda: layers.Dense(5), 30),
    "dense in rows": ((7, 6), lambda: layers.Dense(5), 7 * 30),
    "einsum": ((10, 4, 8), lambda: layers.EinsumDense("abde,dec->abc", (None, 32)), 10240),
    "einsum of heads": (SEQUENCE, lambda: layers.EinsumDense("abc,cde->abde", (None, 2, 3)), 5 * 6 * 2 * 3),
    "einsum of any rank": (IMAGE, lambda: layers.EinsumDense("...x,xy->...y", 3), 64 * 4 * 3),
    "lstm": (SEQUENCE, lambda: layers.LSTM(3), 5 * (6 * 12 + 3 * 12)),
    "gru": (SEQUENCE, lambda: layers.GRU(3, return_sequences=True), 5 * (6 * 9 + 3 * 9)),
    "simple": (SEQUENCE, lambda: layers.SimpleRNN(3), 5 * (6 * 3 + 3 * 3)),
    "cells": (SEQUENCE, lambda: layers.RNN([layers.LSTMCell(3), layers.GRUCell(2)]), 5 * (9 * 12 + 3 * 6 + 2 * 6)),
    "bidirectional": (SEQUENCE, lambda: layers.Bidirectional(layers.LSTM(3)), 2 * 5 * (6 * 12 + 3 * 12)),
    "convolutional lstm": (VIDEO, lambda: layers.ConvLSTM2D(3, 3), 3 * 36 * (9 * 2 * 12 + 9 * 3 * 12)),
    "and its steps": (
        VIDEO,
        lambda: layers.Bidirectional(layers.ConvLSTM2D(3, 3, padding="same", return_sequences=True)),
        2 * 3 * 64 * (9 * 2 * 12 + 9 * 3 * 12),
    ),
    "time distributed": ((10, 12), lambda: layers.TimeDistributed(layers.Dense(16)), 1920),
    "images in time": (VIDEO, lambda: layers.TimeDistributed(layers.Conv2D(3, 3, strides=2)), 3 * 9 * 9 * 2 * 3),
    "upwards in time": (VIDEO, lambda: layers.TimeDistributed(layers.Conv2DTranspose(3, 2)), 3 * 64 * 4 * 2 * 3),
    "einsum in time": (VIDEO, lambda: layers.TimeDistributed(layers.EinsumDense("abcd,de->abce", (8, 8, 3))), 192 * 6),
    "lstm in time": ((4, *SEQUENCE), lambda: layers.TimeDistributed(layers.LSTM(3)), 4 * 5 * (6 * 12 + 3 * 12)),
    "twice in time": ((2, 10, 12), lambda: layers.TimeDistributed(layers.TimeDistributed(layers.Dense(16))), 2 * 1920),
    "a model in time": (VIDEO, lambda: layers.TimeDistributed(inner_model()), 3 * (36 * 9 * 2 * 3 + 9 * 3 * 4)),
    "a row in time": (
        VIDEO,
        lambda: layers.TimeDistributed(keras.Sequential([keras.Input((8, 8, 2)), layers.Flatten(), layers.Dense(2)])),
        3 * 128 * 2,
    ),
    "spectral": (IMAGE, lambda: layers.SpectralNormalization(layers.Conv2D(3, 3)), 36 * 9 * 4 * 3),
    "pooling": (IMAGE, lambda: layers.AveragePooling2D(2), 0),
    "normalization": (IMAGE, layers.BatchNormalization, 0),
    "embedding": ((5,), lambda: layers.Embedding(9, 3), 0),
    "activation": ((6,), layers.PReLU, 0),
}
W43, W64 = np.ones((4, 3), np.float32), np.ones((6, 4), np.float32)
OPERATIONS = {
    "matmul": ([(5, 7), (7, 4)], ops.matmul, 5 * 7 * 4),
    "matmul of heads": ([(2, 5, 7), (2, 7, 4)], ops.matmul, 2 * 5 * 7 * 4),
    "matmul by a constant": ([(5, 4)], lambda x: ops.matmul(x, W43), 5 * 4 * 3),
    "matmul of a constant": ([(4, 5)], lambda x: ops.matmul(W64, x), 6 * 4 * 5),
    "matmul by a tensor": ([(2,)], lambda x: ops.matmul(x, ops.ones((2, 3))), 6),
    "dot": ([(5, 4)], lambda x: ops.dot(x, W43), 5 * 4 * 3),
    "tensordot": ([(4, 8)], lambda x: ops.tensordot(x, np.ones((4, 8, 3), np.float32), [[1, 2], [0, 1]]), 4 * 8 * 3),
    "inner": ([(5, 4)], lambda x: ops.inner(x, np.ones((3, 4), np.float32)), 5 * 4 * 3),
    "einsum": ([(4, 8, 6), (6, 2, 8)], lambda x, y: ops.einsum("bqhd,bdkh->bhqk", x, y), 4 * 8 * 6 * 2),
    "einsum by a constant": ([(5, 6)], lambda x: ops.einsum("bij,jk->bik", x, W64), 5 * 6 * 4),
    "einsum of a constant": ([(5, 6)], lambda x: ops.einsum("jk,bij->bik", W64, x), 5 * 6 * 4),
    "convolution": ([IMAGE], lambda x: ops.conv(x, np.ones((3, 3, 4, 2), np.float32)), 36 * 9 * 4 * 2),
    "transposed": ([IMAGE], lambda x: ops.conv_transpose(x, np.ones((3, 3, 2, 4), np.float32), 2), 64 * 9 * 4 * 2),
    "depthwise": ([IMAGE], lambda x: ops.depthwise_conv(x, np.ones((3, 3, 4, 1), np.float32)), 36 * 9 * 4),
    "separable": (
        [IMAGE],
        lambda x: ops.separable_conv(x, np.ones((3, 3, 4, 1), np.float32), np.ones((1, 1, 4, 5), np.float32)),
        36 * (9 * 4 + 4 * 5),
    ),
    "attention": ([(7, 2, 3), (9, 2, 3)], lambda q, k: ops.dot_product_attention(q, k, k), 2 * 7 * 9 * 2 * 3),
    "scaling": ([(5, 4)], lambda x: x * 2.0 + ops.multiply(x, x), 0),
}


def macs(model):
    graph = build_graph(model)
    return sum(count_macs(graph, node) for node in graph.nodes)


@pytest.mark.parametrize("case", LAYERS)
def test_layers(case):
    shape, make, expected = LAYERS[case]
    source = keras.Input(shape)
    assert macs(keras.Model(source, make()(source))) == expected


@pytest.mark.parametrize("case", OPERATIONS)
def test_operations(case):
    shapes, operation, expected = OPERATIONS[case]
    sources = [keras.Input(shape) for shape in shapes]
    assert macs(keras.Model(sources, operation(*sources))) == expected
    fixed = [keras.Input(batch_shape=(8, *shape)) for shape in shapes]
    assert macs(keras.Model(fixed, operation(*fixed))) == expected  # for one sample


def test_attention_of_queries_to_keys():
    query, key = keras.Input((10, 32)), keras.Input((20, 32))
    model = keras.Model([query, key], layers.MultiHeadAttention(4, 8)(query, key))
    projections = 2 * 10 * 32 * 32 + 2 * 20 * 32 * 32
    assert macs(model) == projections + 2 * 10 * 20 * 32 == 74240


def test_attention_with_other_values_and_a_mask():
    query, key, mask = keras.Input((7, 6)), keras.Input((9, 5)), keras.Input((7, 9), dtype="bool")
    layer = layers.MultiHeadAttention(2, 3, value_dim=4, output_shape=11)
    result = layer(query, value=key, key=key, attention_mask=mask)
    projections = 7 * 6 * 6 + 9 * 5 * 6 + 9 * 5 * 8 + 7 * 8 * 11
    assert macs(keras.Model([query, key, mask], result)) == projections + 7 * 9 * (6 + 8)


@pytest.mark.parametrize(("axes", "products"), [(None, 20 * 20), ((1,), 5 * 4 * 4), ((2,), 4 * 5 * 5)])
def test_attention_along_some_axes(axes, products):
    source = keras.Input((4, 5, 6))
    result = layers.MultiHeadAttention(2, 3, attention_axes=axes)(source, source)
    assert macs(keras.Model(source, result)) == 20 * 4 * 36 + 2 * products * 6


def test_attention_with_fewer_keys_than_queries():
    source = keras.Input((4, 8))
    result = layers.GroupQueryAttention(8, 4, 2)(source, source)
    projections = 4 * (8 * 32 + 2 * 8 * 16 + 32 * 8)
    assert macs(keras.Model(source, result)) == projections + 2 * 4 * 4 * 32


def test_attention_without_weights():
    query, value = keras.Input((7, 6)), keras.Input((9, 6))
    for layer in (layers.Attention(), layers.Dot(axes=(2, 2))):
        expected = 7 * 9 * 12 if isinstance(layer, layers.Attention) else 7 * 9 * 6
        assert macs(keras.Model([query, value], layer([query, value]))) == expected


def test_a_layer_of_the_users_own_counts_its_kernels():
    class Block(layers.Layer):
        def __init__(self):
            super().__init__()
            self.attention, self.last = layers.MultiHeadAttention(2, 3), layers.Dense(7)

        def call(self, x):
            return self.last(self.attention(x, x))

    source = keras.Input(SEQUENCE)
    assert macs(keras.Model(source, Block()(source))) == 5 * 4 * 36 + 2 * 25 * 6 + 5 * 6 * 7


def test_the_update_of_a_low_rank_is_no_product_of_the_input():
    source = keras.Input((6,))
    layer = layers.Dense(5)
    model = keras.Model(source, layer(source))
    layer.enable_lora(2)
    assert macs(model) == 30


def test_channels_first():
    source = keras.Input((4, 8, 8))
    assert macs(keras.Model(source, layers.Conv2D(3, 3, data_format="channels_first")(source))) == 36 * 9 * 4 * 3


@pytest.mark.parametrize(
    ("make", "shape"),
    [
        (lambda **how: layers.Conv2DTranspose(3, 2, strides=2, **how), (8, 7, 4)),
        (lambda **how: layers.SeparableConv2D(3, 2, **how), (8, 7, 4)),
        (lambda **how: layers.ConvLSTM2D(3, 2, **how), (5, 8, 7, 4)),
        (lambda **how: layers.ConvLSTM2D(3, 2, return_sequences=True, **how), (5, 8, 7, 4)),
    ],
    ids=["transposed", "separable", "over time", "over time, all steps"],
)
def test_channels_first_count_as_channels_last_do(make, shape):
    counts = []
    for layout, sizes in (("channels_last", shape), ("channels_first", (*shape[:-3], shape[-1], *shape[-3:-1]))):
        source = keras.Input(sizes)
        counts.append(macs(keras.Model(source, make(data_format=layout)(source))))
    assert counts[0] == counts[1] > 0


def test_unknown_sizes_count_once():
    maker = GraphMaker()
    maker.add("Conv2D", "conv", "image", shape=(None, None, None, 4))
    graph = maker.graph("conv")
    assert count_macs(graph, graph.node("conv")) == 3 * 3 * 4 * 4


def test_an_earlier_plan_knows_the_shape_of_one_constant():
    maker = GraphMaker(shape=(None, 5, 4))
    settings = {"constant_shape": [4, 3]}
    maker.add("Matmul", "product", "image", is_operation=True, shape=(None, 5, 3), settings=settings)
    graph = maker.graph("product")
    assert count_macs(graph, graph.node("product")) == 5 * 4 * 3


def every_kind():
    """Return a model of layers that are integer in part, of several kinds, one of them called twice."""
    source = keras.Input((10, 32), name="source")
    shared = layers.Dense(32, name="shared")
    x = layers.MultiHeadAttention(4, 8, name="attention")(shared(source), shared(source))
    x = layers.TimeDistributed(layers.Dense(8), name="steps")(x)
    x = layers.EinsumDense("abc,cde->abde", (10, 2, 4), name="heads")(x)
    x = ops.einsum("bqhd,bkhd->bqk", x, x)
    return keras.Model(source, layers.Dense(3, name="head")(layers.LSTM(4, name="lstm")(x)))


@pytest.mark.parametrize("target", qdq.target_names())
def test_costs_and_explanations_read_one_counter(target):
    plan = qdq.plan_placement(every_kind(), target=target)
    explanation, costs = qdq.explain(plan), qdq.layer_costs(plan)
    assert {entry.layer: entry.macs for entry in explanation.layers} == {
        name: cost.macs for name, cost in costs.items() if name != "source"
    }
    assert costs["shared"].macs == 2 * 10 * 32 * 32
    for entry in explanation.layers:
        cost = costs[entry.layer]
        assert cost.float_macs == {"int8": 0, "float": cost.macs}[entry.status], entry
    assert 0 < sum(cost.float_macs for cost in costs.values()) < sum(cost.macs for cost in costs.values())
    whole = sum(cost.macs for cost in costs.values())
    share = 1 - sum(cost.float_macs for cost in costs.values()) / whole
    assert explanation.coverage["macs"] == pytest.approx(share)


def test_of_a_shared_layer_only_the_calls_that_are_float_count_as_float():
    source = keras.Input((6,), name="source")
    shared = layers.Dense(6, name="shared")
    spec = qdq.QuantizationSpec()
    spec.add("shared#1", quantize_input=False)
    plan = qdq.plan_placement(keras.Model(source, shared(shared(source))), quantization_spec=spec)
    assert qdq.explain(plan).for_layer("shared").status == "partial"
    cost = qdq.layer_costs(plan)["shared"]
    assert (cost.macs, cost.float_macs) == (72, 36)


def test_an_unknown_number_of_steps_counts_as_one():
    counts = []
    for steps in (None, 1):
        source = keras.Input((steps, 6))
        counts.append(macs(keras.Model(source, layers.GRU(4)(source))))
    assert counts[0] == counts[1] > 0
