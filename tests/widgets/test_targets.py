"""The statuses of layers on a target, as the bench shows them."""

import keras
import pytest

import qdq_workbench as qdq
from qdq_widgets import Workbench
from qdq_widgets.graph_colors import graph_colors
from qdq_widgets.panes.inspector import InspectorPane
from qdq_widgets.targets import execution_values


@pytest.fixture(scope="module")
def dropping():
    image = keras.Input((8, 8, 3), name="image")
    x = keras.layers.Conv2D(4, 3, name="conv")(image)
    return keras.Model(image, keras.layers.Conv2D(4, 3, name="last")(keras.layers.Dropout(0.5, name="drop")(x)))


@pytest.mark.parametrize("target", ["tensorrt", "onnxruntime", "openvino", "litert"])
def test_a_layer_that_vanishes_is_neither_int8_nor_float(dropping, target):
    explanation = qdq.explain(dropping, target=target)
    values = execution_values(explanation)
    assert explanation.for_layer("drop").status == "int8"
    assert values["drop"] == {"status": "vanishes", "reason": "it does nothing at inference"}
    assert values["conv"]["status"] == "int8"
    colors = graph_colors(explanation.plan.graph, "precision", values)
    shown = [colors["statuses"][status] if status >= 0 else None for status in colors["status_of"]]
    assert shown == [None, "int8", "vanishes", "int8"]


def test_the_table_of_statuses_names_it_only_where_something_vanishes(dropping):
    explanation = qdq.explain(dropping, target="onnxruntime")
    values = execution_values(explanation)
    del values["drop"]
    assert "vanishes" not in graph_colors(explanation.plan.graph, "precision", values)["statuses"]


def test_the_bench_finds_and_shows_it_as_none_of_both(dropping):
    bench = Workbench(dropping, target="onnxruntime")
    assert bench.find("int8") == ("conv", "last")
    assert bench.find("float") == ()
    bench.view.graph.select("drop")
    verdict = bench.view.pane(InspectorPane)._verdict.value
    assert "qdq-verdict qdq-vanishes" in verdict
    assert "has nothing of it to run" in verdict
