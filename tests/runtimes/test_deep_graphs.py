"""Explaining takes one pass over a graph, however deep it is and however many paths lead through it."""

import pytest
from mock_graphs import GraphMaker

from qdq_workbench import QuantizationSpec
from qdq_workbench.placement.decide import decide
from qdq_workbench.placement.planner import make_plan
from qdq_workbench.placement.targets import target_names
from qdq_workbench.runtimes import explain_plan

DEPTH = 1200  # more than Python's stack holds


def row(class_name, **fields):
    """Return a graph with a convolution at either end of many layers of one class."""
    maker = GraphMaker()
    last = maker.add("Conv2D", "first", "image")
    for number in range(DEPTH):
        last = maker.add(class_name, f"layer{number}", last, **fields)
    return maker.graph(maker.add("Dense", "last", last))


def diamonds(class_name):
    """Return a graph with 2^60 paths from its input to its output."""
    maker = GraphMaker()
    last = maker.add("ReLU", "first", "image")
    for number in range(60):
        ends = [maker.add(class_name, f"{side}{number}", last) for side in ("left", "right")]
        last = maker.add("Concatenate", f"join{number}", *ends)
    maker.add("MaxPooling2D", "maximum", maker.add("ZeroPadding2D", "zeros", last))
    return maker.graph(maker.add("Conv2D", "last", "maximum"))


def explained(graph, target, spec=None):
    return explain_plan(make_plan(graph, decide(graph, "full", spec, []), "full", target))


@pytest.mark.parametrize("target", target_names())
@pytest.mark.parametrize("class_name", ["MaxPooling2D", "Dropout", "Permute", "ZeroPadding2D"])
def test_many_layers_in_a_row(class_name, target):
    found = explained(row(class_name), target)
    assert len(found.layers) == DEPTH + 2


def test_integers_pass_through_all_of_them():
    found = explained(row("MaxPooling2D"), "onnxruntime")
    assert found.counts["int8"] == DEPTH + 2


def test_many_pairs_in_a_row():
    spec = QuantizationSpec()
    spec.add("Dropout", is_keras_class=True, quantize_output=True)
    assert explained(row("Dropout"), "onnxruntime", spec).counts["int8"] == DEPTH + 2


@pytest.mark.parametrize("target", target_names())
@pytest.mark.parametrize("class_name", ["MaxPooling2D", "Dropout"])
def test_many_paths(class_name, target):
    assert explained(diamonds(class_name), target).for_layer("last").status
