"""The graph of a plan as a page: what it holds, and that names stay data."""

import json
import re

import keras
import pytest
from small_benches import tiny_model

import qdq_workbench as qdq
from qdq_widgets import Workbench, write_graph_page
from qdq_widgets.panes.inspector import InspectorPane
from qdq_widgets.panes.runtime import RuntimePane


def data_of(page):
    """What the script of a page reads."""
    (text,) = re.findall(r'<script type="application/json" class="qdq-graph-data">(.*?)</script>', page, re.DOTALL)
    return json.loads(text)


@pytest.fixture(scope="module")
def plan():
    return qdq.plan_placement(tiny_model(), target="onnxruntime")


def test_the_page_holds_the_graph_and_every_decision(plan, tmp_path):
    page = write_graph_page(plan, tmp_path / "graph.html").read_text(encoding="utf-8")

    data = data_of(page)
    assert data["traits"]["graph"]["names"] == [node.name for node in plan.graph.nodes]
    assert data["traits"]["colors"]["mode"] == "precision"
    assert data["traits"]["editable"] is False
    told = {(node, what, grid) for node, rows in data["details"].items() for what, grid, _ in rows}
    for placement in plan.placements:
        name = placement.weight if placement.site == "weight" else placement.tensor
        assert (placement.node, f"{placement.site} {name}", placement.quantizer.label) in told
    for item in plan.unquantized:
        assert (item.layer, item.what, "float") in told
    for entry in qdq.explain(plan).layers:
        assert (entry.layer, "on onnxruntime", entry.status) in told
    assert f"{len(plan.tensors)} Q/DQ pairs" in page
    assert not re.findall(r'(?:src|href)\s*=\s*["\']?(?:https?:)?//', page), "it needs no network"


def test_layers_and_pairs_are_counted_as_in_the_bench(tmp_path):
    model = keras.Sequential(
        [
            keras.Input((4, 4, 2), name="image"),
            keras.layers.Conv2D(2, 3, name="conv"),
            keras.layers.Dropout(0.5, name="dropout"),
            keras.layers.Flatten(name="flat"),
            keras.layers.Dense(2, name="head"),
        ]
    )
    spec = qdq.QuantizationSpec()
    spec.add("head", quantize_weight=False)
    plan = qdq.plan_placement(model, "full", spec, target="onnxruntime")
    page = write_graph_page(plan, tmp_path / "graph.html").read_text(encoding="utf-8")
    said = re.findall("<p>(.*?)</p>", page)[0]
    (pairs, activations, weights) = map(int, re.findall(r"(\d+) (?:Q/DQ|on)", said))
    assert "; 5 layers: 2 in INT8, 1 in float, 1 vanish, 1 input; " in said
    drawn = sum(len(grids) for grids in data_of(page)["traits"]["plan_state"]["pairs"].values())
    assert (pairs, activations, weights) == (len(plan.tensors), drawn, 1)
    assert pairs == activations + weights
    bench = Workbench(model, spec=spec, target="onnxruntime")
    assert f"{activations} on activations, which the graph draws and counts" in said
    pane = bench.view.pane(RuntimePane)
    pane.refresh()
    assert "5 layers: 2 in INT8, 1 in float, 1 vanish, 1 input. " in pane._counts.value
    assert "2 in INT8, 1 in float, 1 vanish, 1 input" in bench.view.pane(InspectorPane)._details.value


def test_each_call_of_a_shared_layer_tells_what_it_reads_itself_and_the_weights_of_all(tmp_path):
    images = [keras.Input((4,), name=name) for name in ("one", "other")]
    dense = keras.layers.Dense(2, name="dense")
    plan = qdq.plan_placement(keras.Model(images, [dense(image) for image in images]), target="onnxruntime")

    details = data_of(write_graph_page(plan, tmp_path / "graph.html").read_text(encoding="utf-8"))["details"]

    first, second = ({what for what, _, _ in details[call.name]} for call in plan.graph.calls("dense"))
    assert first - second == {"input one"}
    assert second - first == {"input other"}
    assert "weight kernel" in first


def test_names_are_data_only(tmp_path):
    name = "<_script><script>alert(1)<_script><!--"
    image = keras.Input((4,), name="image")
    model = keras.Model(image, keras.layers.Dense(2, name=name)(image), name=name)

    page = write_graph_page(qdq.plan_placement(model), tmp_path / "graph.html").read_text(encoding="utf-8")

    assert name not in page
    assert page.count("<script") == 2
    assert name in data_of(page)["traits"]["graph"]["names"]


def test_a_target_without_rules_shows_the_plan(plan, tmp_path, monkeypatch):
    def unknown(_plan):
        raise qdq.errors.TargetError("no rules")

    monkeypatch.setattr(qdq, "explain", unknown)
    page = write_graph_page(plan, tmp_path / "graph.html").read_text(encoding="utf-8")
    assert data_of(page)["traits"]["colors"] == {"mode": "plan"}
    assert "layers: " not in page


def test_what_cannot_be_written_or_is_no_plan_is_refused(plan, tmp_path):
    with pytest.raises(qdq.errors.OutputPathError, match="existing folder"):
        write_graph_page(plan, tmp_path / "missing" / "graph.html")
    with pytest.raises(qdq.SpecError, match="plan_placement"):
        write_graph_page("plan", tmp_path / "graph.html")
    assert not list(tmp_path.iterdir())


def test_the_page_needs_no_widget_library(fresh):
    done = fresh.run("import sys, qdq_widgets.graph_page; print({'anywidget', 'ipywidgets'} & set(sys.modules))")
    assert (done.returncode, done.stdout.strip()) == (0, "set()"), done.stderr
