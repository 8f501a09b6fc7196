"""The number of values of every weight, by layer."""

from mock_graphs import GraphMaker, chain

from qdq_workbench.graph.weight_sizes import weight_sizes


def test_a_shared_layer_is_counted_once():
    maker = GraphMaker()
    maker.add("Conv2D", "conv", "image")
    maker.add("Conv2D", "conv#1", "conv", layer="conv")
    maker.add("ReLU", "relu", "conv#1")
    found = weight_sizes(maker.graph("relu"))
    assert found == {"image": {}, "conv": {"conv/kernel": 144, "conv/bias": 4}, "relu": {}}


def test_each_graph_has_its_own():
    for name in ("one", "two"):
        assert weight_sizes(chain(("Dense", name)))[name][f"{name}/kernel"] == 144
