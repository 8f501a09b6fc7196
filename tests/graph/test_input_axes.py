"""The axis of a kernel along which it reads channels."""

import keras
import pytest
from keras import layers

from qdq_workbench.graph.input_axes import input_axis
from qdq_workbench.graph_builder import build_graph


@pytest.mark.parametrize(
    ("layer", "shape", "weight", "axis"),
    [
        (layers.Dense(3), (4,), "kernel", 0),
        (layers.Conv1D(3, 2), (4, 2), "kernel", 1),
        (layers.Conv2D(3, 2), (4, 4, 2), "kernel", 2),
        (layers.Conv1DTranspose(3, 2), (4, 2), "kernel", 2),
        (layers.Conv2DTranspose(3, 2), (4, 4, 2), "kernel", 3),
        (layers.DepthwiseConv2D(2, depth_multiplier=2), (4, 4, 2), "kernel", 2),
        (layers.SeparableConv2D(3, 2), (4, 4, 2), "pointwise_kernel", 2),
        (layers.EinsumDense("abc,cde->abde", (4, 2, 3)), (4, 2), "kernel", 0),
        (layers.EinsumDense("abde,dec->abc", (4, 3)), (4, 2, 2), "kernel", 1),
        (layers.EinsumDense("...x,xy->...y", (4, 3)), (4, 2), "kernel", 0),
        (layers.EinsumDense("ab,ac->abc", (4, 3)), (4,), "kernel", None),  # the last axis is no axis of the kernel
        (layers.TimeDistributed(layers.Dense(3)), (4, 2), "layer/kernel", 0),
        (layers.Dense(3), (4,), "bias", None),
        (layers.LSTM(3), (4, 2), "cell/kernel", None),
    ],
)
def test_axes(layer, shape, weight, axis):
    source = keras.Input(shape, batch_size=5 if axis is None and weight == "kernel" else None)
    graph = build_graph(keras.Model(source, layer(source)))
    assert input_axis(graph.node(layer.name), weight) == axis
