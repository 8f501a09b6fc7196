"""What the passes may join: the nodes of one layer, what the plan joins, and what the plan does not know."""

import pytest
from mock_graphs import GraphMaker

from qdq_workbench.export.planned_joins import PlannedJoins
from qdq_workbench.onnx_graph.graph import Node
from qdq_workbench.placement.lowering import lower

KINDS = (("Pad", "pad"), ("Conv", "conv"))


def joins(part, whole):
    """Whether the plan of a small network lets one node become a part of another."""
    maker = GraphMaker()
    maker.add("ZeroPadding2D", "pad", "image", settings={"padding": [[1, 1], [1, 1]]})
    maker.add("Conv2D", "conv", "pad")
    maker.add("Add", "plus", "conv", is_operation=True, settings={"constant_shape": [4]})
    maker.add("Add", "again", "plus", is_operation=True, settings={"constant_shape": [4]})
    maker.add("ZeroPadding2D", "kept", "again", settings={"padding": [[1, 1], [1, 1]]})
    maker.add("MaxPooling2D", "pool", "kept", settings={"pool_size": [3, 3]})
    maker.add("Conv2D", "own", "pool", opaque="call is overridden")
    maker.add("Conv2D", "last", "own")
    maker.add("Activation", "hard", "last", settings={"activation": "hard_sigmoid"})
    graph = maker.graph("hard")
    return PlannedJoins(graph, lower(graph, []))(Node("Pad", [], [], name=part), Node("Conv", [], [], name=whole))


@pytest.mark.parametrize(
    ("part", "whole", "allowed"),
    [
        ("pad/Pad", "conv/convolution", True),  # the plan says so
        ("plus/add", "conv/convolution", True),
        ("again/add", "conv/convolution", True),  # through the first constant
        ("again/add", "plus/BiasAdd", True),  # TensorFlow called the convolution after the constant
        ("kept/Pad", "pool/MaxPool", False),  # its values may be negative
        ("pad/Pad", "pool/MaxPool", False),
        ("conv/Pad", "conv/convolution", True),  # the convolution's own padding
        ("kept/Pad", "own/convolution", True),  # the plan does not know what a layer of the user's own is in a file
        ("own/Pad", "conv/convolution", False),  # a pair between the two would have another shape than the model's
        ("own/Pad", "own/convolution", True),
        ("hard/add", "last/convolution", False),  # it is no bias
        ("hard/add", "hard/truediv", True),
        ("tf2onnx__12", "conv/convolution", True),  # of no layer
    ],
)
def test_what_the_plan_joins(part, whole, allowed):
    assert joins(part, whole) is allowed


def test_what_a_converter_merged_is_joined_for_both_layers():
    """Two equal paddings of one tensor become one Pad, which has the name of either."""
    maker = GraphMaker()
    padding = {"padding": [[1, 1], [1, 1]]}
    for name in ("a", "b"):
        maker.add("ZeroPadding2D", f"pad_{name}", "image", settings=padding)
        maker.add("Conv2D", f"conv_{name}", f"pad_{name}")
    maker.add("ZeroPadding2D", "pad_c", "conv_a", settings=padding)
    maker.add("Conv2D", "conv_c", "pad_c")
    graph = maker.graph("conv_b", "conv_c")
    asked = PlannedJoins(graph, lower(graph, []))
    pads, convs = ([Node(op, [], [], name=f"{layer}_{name}/x") for name in "abc"] for op, layer in KINDS)
    allowed = [[asked(pad, conv) for conv in convs] for pad in pads]
    assert allowed == [[True, True, False], [True, True, False], [False, False, True]]


def test_names_are_those_of_the_file():
    maker = GraphMaker()
    maker.add("ZeroPadding2D", "pad", "image", settings={"padding": [[1, 1], [1, 1]]})
    maker.add("ReLU", "relu", "pad")
    graph = maker.graph("relu")
    asked = PlannedJoins(graph, lower(graph, []), {"qdq_op_1/x": "pad/x", "qdq_op_2/x": "relu/x"}.__getitem__)
    assert not asked(Node("Pad", [], [], name="qdq_op_1/x"), Node("Relu", [], [], name="qdq_op_2/x"))
