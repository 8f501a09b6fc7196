import keras
import pytest
from mock_graphs import GraphMaker, residual

from qdq_workbench.graph.model_graph import Node
from qdq_workbench.graph.op_kinds import ends_in_convolution
from qdq_workbench.graph_builder import build_graph
from qdq_workbench.placement.defaults import find_named_default


@pytest.mark.parametrize(
    ("branch", "fused"),
    [
        (("Conv2D",), True),
        (("DepthwiseConv2D",), True),
        (("Conv2D", "BatchNormalization"), True),
        (("Conv2D", "BatchNormalization", "Activation"), True),
        (("Conv2D", "BatchNormalization", "ReLU"), True),
        (("Conv2D", "BatchNormalization", "Dropout"), True),
        (("Conv2D", "BatchNormalization", "LeakyReLU", "Dropout"), True),
        (("Conv2D", "ReLU"), False),
        (("Conv2D", "Dropout"), False),
        (("Conv2D", "Activation", "BatchNormalization"), False),
        (("Conv2D", "MaxPooling2D"), False),
        (("Dense",), False),
        (("BatchNormalization",), False),
    ],
)
def test_producer_chains_that_fuse_with_an_add(branch, fused):
    graph = residual(*branch)
    assert ends_in_convolution(graph, graph.node("add").inputs[0]) is fused


def test_a_second_reader_inside_the_model_breaks_the_chain():
    maker = GraphMaker()
    maker.add("Conv2D", "conv", "image")
    maker.add("BatchNormalization", "norm", "conv")
    maker.add("Add", "add", "norm", "image")
    assert ends_in_convolution(maker.graph("add"), "norm")
    maker.add("ReLU", "other", "conv")
    assert not ends_in_convolution(maker.graph("add", "other"), "norm")


def test_a_tensor_that_the_model_returns_is_needed_elsewhere():
    maker = GraphMaker()
    maker.add("Conv2D", "conv", "image")
    maker.add("Add", "add", "conv", "image")
    assert ends_in_convolution(maker.graph("add"), "conv")
    assert not ends_in_convolution(maker.graph("add", "conv"), "conv")


def test_an_activation_may_be_an_operation():
    maker = GraphMaker()
    maker.add("Conv2D", "conv", "image")
    maker.add("BatchNormalization", "norm", "conv")
    maker.add("Silu", "silu", "norm", is_operation=True)
    maker.add("Add", "add", "silu", "image", is_operation=True)
    assert ends_in_convolution(maker.graph("add"), "silu")


@pytest.mark.parametrize(
    ("class_name", "settings", "expected"),
    [
        ("ReLU", {}, "relu"),
        ("ReLU", {"max_value": 6.0}, "relu6"),
        ("ReLU", {"max_value": 1.0}, "clipped_relu"),
        ("ReLU", {"negative_slope": 0.1}, "leaky_relu"),
        ("ReLU", {"negative_slope": 0.1, "max_value": 6.0}, "clipped_leaky_relu"),
        ("ReLU", {"threshold": 0.5}, "thresholded_relu"),
        ("ReLU", {"threshold": 0.5, "negative_slope": 0.1}, "thresholded_leaky_relu"),
        ("Activation", {"activation": "swish"}, "silu"),
        ("Conv2D", {"activation": "relu"}, "relu"),
        ("Conv2D", {}, "linear"),
        ("Softmax", {}, "softmax"),
    ],
)
def test_activation_names(class_name, settings, expected):
    assert Node("n", "n", class_name, settings=settings).activation_name == expected


@pytest.mark.parametrize(("name", "gates"), [("LSTM", 4), ("GRU", 3), ("SimpleRNN", 1), ("ConvLSTM1D", 4)])
def test_the_scales_of_a_cell_lie_along_the_axis_of_its_gates(name, gates):
    sizes, settings = ((5, 4, 3), (7, 2)) if name.startswith("Conv") else ((5, 3), (7,))
    source = keras.Input(sizes)
    layer = getattr(keras.layers, name)(*settings, name="steps")
    weights = find_named_default(build_graph(keras.Model(source, layer(source))).node("steps")).weights
    shapes = {variable.name: variable.shape for variable in layer.cell.weights}
    found = {path.rpartition("/")[2]: axis for path, axis in weights.items()}
    assert set(found) == {"kernel", "recurrent_kernel"}
    for weight, axis in found.items():
        assert axis % len(shapes[weight]) == len(shapes[weight]) - 1
        assert shapes[weight][axis] == 7 * gates
