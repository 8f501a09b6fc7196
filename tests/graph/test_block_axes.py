"""The axes of a weight that blocks may lie along, and their length where a file has it as a matrix."""

import keras
import pytest
from keras import layers

from qdq_workbench.graph.block_axes import block_axes, block_in_file
from qdq_workbench.graph_builder import build_graph


def node_of(layer, *shape, dtype="float32"):
    source = keras.Input(shape, dtype=dtype)
    inputs = (source, source) if isinstance(layer, layers.MultiHeadAttention) else (source,)
    return build_graph(keras.Model(source, layer(*inputs))).nodes[-1]


@pytest.mark.parametrize(
    ("layer", "shape", "weight", "axes"),
    [
        (layers.Dense(3), (4,), "kernel", (0,)),
        (layers.Dense(3), (4,), "bias", ()),
        (layers.EinsumDense("abc,cde->abde", (4, 2, 3)), (4, 2), "kernel", (0,)),
        (layers.EinsumDense("abde,dec->abc", (4, 3)), (4, 2, 2), "kernel", (0, 1)),
        (layers.EinsumDense("abc,dc->abd", (4, 3)), (4, 2), "kernel", (1,)),
        (layers.TimeDistributed(layers.Dense(3)), (4, 2), "layer/kernel", (0,)),
        (layers.MultiHeadAttention(2, 3), (4, 6), "query/kernel", (0,)),
        (layers.MultiHeadAttention(2, 3), (4, 6), "attention_output/kernel", (0, 1)),
        (layers.Conv2D(3, 2), (4, 4, 2), "kernel", ()),
        (layers.LSTM(3), (4, 2), "cell/kernel", ()),
    ],
)
def test_axes(layer, shape, weight, axes):
    assert block_axes(node_of(layer, *shape), weight) == axes


def test_the_rows_of_a_table_are_looked_up_whole():
    assert block_axes(node_of(layers.Embedding(4, 3), 4, dtype="int32"), "embeddings") == (1,)


@pytest.mark.parametrize(("size", "block", "length"), [(24, 32, 24), (64, 32, 32), (48, 32, 16), (50, 32, 2)])
def test_an_axis_that_becomes_one_with_another_cuts_its_blocks(size, block, length):
    node = node_of(layers.EinsumDense("abde,dec->abc", (4, 3)), 4, 2, size)
    assert block_in_file(node, "kernel", 1, block) == length
    assert block_in_file(node, "kernel", 0, 2) == 2 * size
