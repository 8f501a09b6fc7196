"""Which layers read the same values."""

from mock_graphs import GraphMaker

from qdq_workbench.graph.twins import twins_of


def test_twins_are_called_on_the_same_tensors():
    maker = GraphMaker("x", "y")
    read = {"a": ("x",), "b": ("x",), "c": ("x", "y"), "d": ("y", "x")}
    for name, inputs in read.items():
        maker.add("Add", name, *inputs)
    graph = maker.graph(*read)

    assert [twins_of(graph, name) for name in read] == [{"b"}, {"a"}, set(), set()]
    assert twins_of(graph, "x") == set()


def test_they_may_be_called_on_what_is_computed_alike():
    maker = GraphMaker("x")
    settings = {"relu": {}, "same": {}, "other": {"max_value": 6.0}}
    for name, own in settings.items():
        maker.add("ReLU", name, "x", settings=own)
        maker.add("ZeroPadding2D", f"behind_{name}", name)
    for name in ("conv", "equal_conv"):
        maker.add("Conv2D", name, "x")
        maker.add("ZeroPadding2D", f"behind_{name}", name)
    maker.add("ZeroPadding2D", "behind_dropout", maker.add("Dropout", "dropout", "same"))
    graph = maker.graph("behind_relu")

    assert twins_of(graph, "behind_relu") == {"behind_same", "behind_dropout", "dropout"}
    assert twins_of(graph, "behind_dropout") == {"behind_relu", "behind_same", "dropout"}
    assert twins_of(graph, "behind_other") == set()
    assert twins_of(graph, "behind_conv") == set()  # its weights are its own
