"""Layers by query, the selection of the bench, and colours by rules: the same by mouse, by keys and in Python."""

import json

import keras
import pytest
from project import ROOT
from small_benches import tiny_model

import qdq_workbench as qdq
from qdq_widgets import Workbench
from qdq_widgets.errors import BenchError
from qdq_widgets.layer_query import find_layers
from qdq_widgets.panes.inspector import InspectorPane
from qdq_widgets.state import Planner
from qdq_widgets.style_rules import rules_from_text, rules_text

QUERIES = json.loads((ROOT / "widgets" / "src" / "queries.json").read_text())


@pytest.fixture(scope="module")
def planner():
    """The graph of the front end's tests."""
    image = keras.Input((8, 8, 4), name="image")
    x = relu = keras.layers.Activation("relu", name="relu")(keras.layers.Conv2D(4, 1, name="conv")(image))
    for name in ("left_1", "left_2"):
        x = keras.layers.Conv2D(4, 1, name=name)(x)
    total = keras.layers.Add(name="sum")([x, relu])
    return Planner(keras.Model(image, keras.layers.Dense(4, name="dense")(total), name="net"))


@pytest.fixture(scope="module")
def plan(planner):
    spec = qdq.QuantizationSpec()
    spec.add("conv", quantize_config=qdq.LayerQuantizeConfig(weight={"num_bits": 4}))
    return qdq.plan_placement(planner.graph, "partial", spec)


@pytest.mark.parametrize(("query", "names"), QUERIES)
def test_queries_find_what_the_graphs_search_finds(planner, plan, query, names):
    assert list(find_layers(plan, planner.possible(plan.target), query, {})) == names


def test_the_targets_verdict_decides_where_it_is_known(planner, plan):
    possible = planner.possible(plan.target)
    statuses = {"relu": "int8", "conv": "float", "sum": "unknown"}
    assert find_layers(plan, possible, "int8", statuses) == ("relu",)
    assert find_layers(plan, possible, "not int8", statuses) == ("conv",)


def test_all_matches_are_switched_together(bench):
    found = bench.find("class:conv2d not float")
    assert found == ("stem", "conv")
    bench.toggle(found, "weight", on=False)
    assert bench.find("w=float class:conv2d") == found
    assert bench.history.position == 1


def test_weights_that_calls_share_are_found():
    image = keras.Input((4,), name="image")
    twice = keras.layers.Dense(4, name="twice")
    model = keras.Model(image, twice(keras.layers.ReLU(name="relu")(twice(image))))
    assert Workbench(model).find("shared") == ("twice", "twice#1")


def test_the_selection_is_one_in_python_graph_and_inspector(bench):
    events = []
    bench.subscribe(events.append)
    assert bench.select("class:conv2d") == ("stem", "conv")
    assert bench.selection == ("stem", "conv")
    view = bench.view
    bench.select(["head"])
    assert view.graph.selection == ("head",)
    assert "head" in view.pane(InspectorPane)._head.value
    view.graph.selection = ("stem",)  # a click
    assert bench.selection == ("stem",)
    assert events.count("selection") == 3
    bench.select("stem")
    assert events.count("selection") == 3
    with pytest.raises(qdq.SpecError, match="head"):
        bench.select(["heat"])
    assert bench.select([]) == ()


def test_a_bench_that_selected_before_it_was_shown_shows_it(model):
    bench = Workbench(model)
    bench.select("head")
    assert bench.view.graph.selection == ("head",)


def test_rules_colour_layers_and_follow_the_plan(bench):
    bench.color_rules({"w=float": "orange", "class:*2d": "#123ABC"})
    assert bench.coloring == "rules"
    view = bench.view
    rule = {
        name: fill for name, fill in zip(view.graph.graph["names"], view.graph.colors["fills"], strict=True) if fill
    }
    assert rule == dict.fromkeys(("stem", "conv", "pool"), "#123abc")
    bench.toggle("conv", "weight")
    assert dict(bench.rule_values())["conv"] == ("#e69f00", "w=float")
    assert ["#e69f00", "w=float"] in view.graph.colors["rules"]
    assert "#e69f00" in view.graph.colors["fills"]


def test_rules_are_saved_and_taken_along(bench, tmp_path):
    rules = {"class:*2d": "#e69f00"}
    bench.color_rules(rules)
    bench.save(tmp_path / "bench")
    following = Workbench(bench.model)
    following.continue_from(bench)
    for other in (Workbench.load(tmp_path / "bench"), following):
        assert (other.rules, other.coloring) == (rules, "rules")
        assert ["#e69f00", "class:*2d"] in other.view.graph.colors["rules"]
    bench.color_by("plan")
    bench.load(tmp_path / "bench")
    assert bench.coloring == "rules"


def test_rules_are_written_under_the_bar(bench):
    view = bench.view
    assert view.rules.widget.layout.display == "none"
    view.colors.value = "rules"
    assert view.rules.widget.layout.display == ""
    view.rules.field.value = "w=8 = blue; conv not int8 = #ff0000"
    assert bench.rules == {"w=8": "#0072b2", "conv not int8": "#ff0000"}
    view.rules.field.value = "conv"
    assert "conv* = blue" in view.rules.errors.message
    assert bench.rules == {"w=8": "#0072b2", "conv not int8": "#ff0000"}
    assert rules_from_text(rules_text(bench.rules)) == bench.rules


@pytest.mark.parametrize(
    ("rules", "message"),
    [
        ({"conv": "blau"}, "#rrggbb"),
        ({" ": "blue"}, "needs a query"),
        (["conv"], "mapping from queries"),
        ({"conv": "#12345"}, "#rrggbb"),
    ],
)
def test_rules_that_cannot_be_drawn_are_refused(bench, rules, message):
    before = bench.coloring
    with pytest.raises(BenchError, match=message):
        bench.color_rules(rules)
    assert bench.coloring == before


def test_a_query_that_is_no_text_is_refused():
    with pytest.raises(BenchError, match="conv not int8"):
        Workbench(tiny_model()).find(3)
