import json

import pytest
from mock_graphs import GraphMaker

from qdq_workbench.errors import SpecError
from qdq_workbench.graph.model_graph import ModelGraph, Node, Tensor, Weight


@pytest.fixture
def graph():
    maker = GraphMaker()
    maker.add("Conv2D", "conv", "image")
    maker.add("Conv2D", "conv#1", "conv", layer="conv")
    maker.add("Add", "add", "conv", "conv#1")
    return maker.graph("add", "add")


def test_json_round_trip(graph):
    assert ModelGraph.from_dict(json.loads(json.dumps(graph.to_dict()))) == graph


def test_a_shared_layer_is_one_layer_with_two_calls(graph):
    assert graph.layers == ["image", "conv", "add"]
    assert [node.name for node in graph.calls("conv")] == ["conv", "conv#1"]
    assert [node.name for node in graph.calls("conv#1")] == ["conv#1"]


def test_readers_and_producers(graph):
    assert [(node.name, index) for node, index in graph.readers("conv")] == [("conv#1", 0), ("add", 0)]
    assert graph.producer("conv#1").layer == "conv"
    assert graph.has_one_use("conv#1")
    assert not graph.has_one_use("conv")
    assert not graph.has_one_use("add")


@pytest.mark.parametrize("look_up", [ModelGraph.node, ModelGraph.calls])
def test_unknown_names_show_the_nearest(graph, look_up):
    with pytest.raises(SpecError, match="'conv'"):
        look_up(graph, "cnov")


@pytest.mark.parametrize("look_up", [ModelGraph.producer, ModelGraph.readers, ModelGraph.has_one_use])
@pytest.mark.parametrize(("name", "says"), [("conv#2", "'conv#1'"), (3, "Received: tensor=3")])
def test_unknown_tensors_are_named(graph, look_up, name, says):
    with pytest.raises(SpecError, match=f"no tensor of that name.*{says}"):
        look_up(graph, name)


def test_weights_are_trainable_float32_unless_they_say_otherwise():
    weight = Weight("kernel", (2, 3))
    assert (weight.dtype, weight.trainable) == ("float32", True)


def test_an_operation_whose_class_is_called_as_an_input_is_none():
    maker = GraphMaker()
    graph = maker.graph(maker.add("InputLayer", "own", "image", is_operation=True))
    assert [(node.name, node.class_name, node.is_model_input) for node in graph.nodes] == [
        ("image", "InputLayer", True),
        ("own", "InputLayer", False),
    ]
    assert not Node("dense", "dense", "Dense").is_model_input


@pytest.mark.parametrize(
    ("dtype", "is_float"),
    [("float32", True), ("bfloat16", True), ("float8_e4m3fn", True), ("int8", False), ("bool", False), ("str", False)],
)
def test_floats_of_any_width_are_floats(dtype, is_float):
    assert Tensor("x", (None, 2), dtype, "x").is_float is is_float
    assert Weight("kernel", (2, 3), dtype).is_float is is_float
