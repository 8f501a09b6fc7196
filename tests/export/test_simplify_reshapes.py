"""Which Reshapes and Transposes are superfluous."""

import numpy as np
import pytest
from pass_graphs import assert_same, model_of, operators

from qdq_workbench.export.passes.simplify_reshapes import PASS, simplify_reshapes
from qdq_workbench.onnx_graph.graph import Graph

TURN = {"perm": [0, 2, 3, 1]}


def simplified(*rows, shape=(2, 3, 4, 5), **constants):
    """Run the pass; the graph computes the same, and a second run finds nothing."""
    model = model_of(rows, {"x": shape}, rows[-1][2], {k: np.array(v, np.int64) for k, v in constants.items()})
    graph = Graph(model)
    simplify_reshapes(graph)
    assert not list(PASS.denied_by(graph))
    assert_same(model, graph)
    return operators(graph)


@pytest.mark.parametrize("sizes", [(2, 3, 4, 5), (-1, 3, 4, 5), (2, 3, -1, 5)])
def test_a_reshape_to_the_shape_of_its_input_goes(sizes):
    assert simplified(("Reshape", "x,sizes", "same"), ("Relu", "same", "y"), sizes=sizes) == ["Relu"]


@pytest.mark.parametrize("sizes", [(2, 3, 20), (2, 4, 3, 5), (0, 3, 4, 5)])
def test_others_stay(sizes):
    assert "Reshape" in simplified(("Reshape", "x,sizes", "other"), ("Relu", "other", "y"), sizes=sizes)


def test_a_reshape_that_writes_an_output_stays():
    assert simplified(("Relu", "x", "clipped"), ("Reshape", "clipped,sizes", "y"), sizes=(2, 3, 4, 5)) == [
        "Relu",
        "Reshape",
    ]


@pytest.mark.parametrize(
    ("second", "left"),
    [
        ({"perm": [0, 3, 1, 2]}, ["Relu"]),  # back again
        ({"perm": [0, 2, 3, 1]}, ["Transpose", "Relu"]),
    ],
)
def test_the_transposes_around_one_that_goes_become_one(second, left):
    rows = (
        ("Transpose", "x", "turned", TURN),
        ("Reshape", "turned,sizes", "same"),
        ("Transpose", "same", "back", second),
        ("Relu", "back", "y"),
    )
    assert simplified(*rows, sizes=(2, 4, 5, 3)) == left


def test_a_transpose_of_axes_of_one_element_is_a_reshape():
    rows = (("Reshape", "x,sizes", "row"), ("Transpose", "row", "turned", TURN), ("Relu", "turned", "y"))
    assert simplified(*rows, shape=(2, 6), sizes=(2, 6, 1, 1)) == ["Reshape", "Relu"]


def test_a_squeeze_in_front_of_a_reshape_goes():
    rows = (("Squeeze", "x,axes", "row"), ("Reshape", "row,sizes", "y"))
    assert simplified(*rows, shape=(2, 6, 1, 1), axes=(2, 3), sizes=(2, 3, 2)) == ["Reshape"]
