import keras
import pytest
from keras import layers
from mock_graphs import GraphMaker

from qdq_workbench.graph.macs import count_macs
from qdq_workbench.graph_builder import build_graph


@pytest.mark.parametrize(
    ("shape", "layer", "expected"),
    [
        ((8, 8, 3), layers.Conv2D(4, 3), 6 * 6 * 4 * 27),
        ((8, 8, 4), layers.Conv2D(4, 3, padding="same", groups=2), 64 * 4 * 18),
        ((8, 8, 3), layers.DepthwiseConv2D(3, depth_multiplier=2), 36 * 6 * 9),
        ((8, 8, 3), layers.SeparableConv2D(5, 3), 36 * (27 + 15)),
        ((4, 4, 3), layers.Conv2DTranspose(2, 2, strides=2), 16 * 4 * 3 * 2),
        ((8, 3), layers.Conv1D(4, 3), 6 * 4 * 9),
        ((6,), layers.Dense(5), 30),
        ((7, 6), layers.Dense(5), 7 * 30),
        ((8, 8, 3), layers.MaxPooling2D(), 0),
        ((8, 8, 3), layers.BatchNormalization(), 0),
    ],
)
def test_one_layer(shape, layer, expected):
    image = keras.Input(shape)
    graph = build_graph(keras.Model(image, layer(image)))
    assert sum(count_macs(graph, node) for node in graph.nodes) == expected


def test_a_product_of_two_tensors():
    left, right = keras.Input((5, 7)), keras.Input((7, 4))
    graph = build_graph(keras.Model([left, right], keras.ops.matmul(left, right)))
    assert sum(count_macs(graph, node) for node in graph.nodes) == 5 * 4 * 7


def test_unknown_sizes_count_once():
    maker = GraphMaker()
    maker.add("Conv2D", "conv", "image", shape=(None, None, None, 4))
    graph = maker.graph("conv")
    assert count_macs(graph, graph.node("conv")) == 3 * 3 * 4 * 4
