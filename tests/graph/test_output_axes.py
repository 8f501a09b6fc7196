"""The axes of a kernel along which integer kernels take scales."""

import keras
import pytest
from keras import layers

from qdq_workbench.graph.output_axes import output_axes
from qdq_workbench.graph_builder import build_graph


@pytest.mark.parametrize(
    ("layer", "shape", "weight", "axes"),
    [
        (layers.Dense(3), (4,), "kernel", (1,)),
        (layers.Conv1D(3, 2), (4, 2), "kernel", (2,)),
        (layers.Conv2D(3, 2), (4, 4, 2), "kernel", (3,)),
        (layers.Conv2DTranspose(3, 2), (4, 4, 2), "kernel", (2,)),
        (layers.DepthwiseConv2D(2, depth_multiplier=2), (4, 4, 2), "kernel", (2, 3)),
        (layers.SeparableConv2D(3, 2), (4, 4, 2), "depthwise_kernel", (2, 3)),
        (layers.SeparableConv2D(3, 2), (4, 4, 2), "pointwise_kernel", (3,)),
        (layers.EinsumDense("abc,cde->abde", (4, 2, 3)), (4, 2), "kernel", (1, 2)),
        (layers.EinsumDense("abde,dec->abc", (4, 3)), (4, 2, 2), "kernel", (2,)),
        (layers.TimeDistributed(layers.Dense(3)), (4, 2), "layer/kernel", (1,)),
        (layers.Dense(3), (4,), "bias", None),
        (layers.LSTM(3), (4, 2), "cell/kernel", None),
        (layers.Embedding(4, 3), (4,), "embeddings", None),
    ],
)
def test_axes(layer, shape, weight, axes):
    source = keras.Input(shape)
    graph = build_graph(keras.Model(source, layer(source)))
    assert output_axes(graph.node(layer.name), weight) == axes
