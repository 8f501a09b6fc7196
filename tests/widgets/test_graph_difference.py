"""What the graph says of a step: pairs that come and go, readers of one that stays, and layers that run otherwise."""

import json

import pytest

import qdq_workbench as qdq
from qdq_widgets import GraphView, Workbench, graph_difference
from qdq_widgets.graph_difference import plan_difference
from qdq_widgets.panes.cases import CasesPane
from qdq_widgets.panes.inspector import InspectorPane
from qdq_widgets.targets import statuses


@pytest.fixture(scope="module")
def graph(model):
    return qdq.build_graph(model)


def plan(graph, *entries, target="onnxruntime", **more):
    spec = qdq.QuantizationSpec()
    for name, settings in entries:
        spec.add(name, **settings)
    return qdq.plan_placement(graph, "full", spec, target=target, **more)


def told(before, after):
    found = plan_difference(
        before, after, tuple(statuses(qdq.explain(one, target=one.target)) for one in (before, after))
    )
    names = [node.name for node in after.graph.nodes]
    return found["summary"], [(names[node], sign, text) for node, sign, text in found["rows"]]


def test_a_layer_in_float_takes_its_pairs_with_it_and_says_what_runs_otherwise(graph):
    summary, rows = told(plan(graph), plan(graph, ("stem", {"quantize_input": False, "quantize_weight": False})))
    assert rows == [
        ("image", "-", "pair behind image"),
        ("stem", "-", "weights stem/kernel"),
        ("stem", "F", "stem in float, was in INT8"),
        ("relu", "F", "relu in float, was in INT8"),
        ("add", "F", "add in float, was in INT8"),
    ]
    assert summary == "-2 pairs, 3 layers now in float"


def test_and_back_again(graph):
    summary, rows = told(plan(graph, ("stem", {"quantize_input": False, "quantize_weight": False})), plan(graph))
    assert [(node, sign) for node, sign, _ in rows[:3]] == [("image", "+"), ("stem", "+"), ("stem", "8")]
    assert summary == "+2 pairs, 3 layers now in INT8"


def test_another_grid_is_said(graph):
    four = qdq.LayerQuantizeConfig(weight={"num_bits": 4})
    summary, rows = told(plan(graph), plan(graph, ("conv", {"quantize_config": four})))
    assert summary.startswith("1 other grid")
    assert rows[0][:2] == ("conv", "~")
    assert "int8" in rows[0][2].split(" to ")[0]
    assert "int4" in rows[0][2].split(" to ")[1]


def test_an_input_that_no_longer_takes_a_pair_which_stays(graph):
    before = plan(graph, target="tensorrt")
    after = plan(graph, ("conv", {"quantize_input": False}), ("add", {"quantization_index": [1]}), target="tensorrt")
    assert {item.name for item in before.tensors} - {item.name for item in after.tensors} == set()
    summary, rows = told(before, after)
    assert ("conv", "-", "input 0 of conv no longer takes the pair on relu") in rows
    assert summary.startswith("2 inputs changed")


def test_the_words_of_a_plan_difference_count_as_the_graph_does(graph):
    off = {"quantize_input": False, "quantize_weight": False}
    for entries in ((("stem", off),), (("stem", {"quantize_output": True}),), (("conv", off),)):
        before, after = plan(graph), plan(graph, *entries)
        found = told(before, after)
        rows = found[1] if found else []
        counts = before.diff(after).counts
        for sign, word in (("+", "more"), ("-", "less")):
            pairs = sum(one == sign and ("pair behind" in text or "weights" in text) for _, one, text in rows)
            assert (f"{pairs} pair{'s' * (pairs > 1)} {word}" in counts) == bool(pairs), counts
        inputs = sum("input" in text.split()[0] for _, _, text in rows)
        assert (f"{inputs} input{'s' * (inputs > 1)} changed" in counts) == bool(inputs), counts


def test_nothing_to_say_of_the_same_plan_or_of_another_target(graph):
    assert plan_difference(plan(graph), plan(graph)) is None
    assert plan_difference(plan(graph), plan(graph, target="tensorrt")) is None


def test_many_rows_are_cut_and_counted(graph, monkeypatch):
    without = plan(graph, ("stem", {"quantize_input": False, "quantize_weight": False}))
    whole = plan_difference(without, plan(graph))
    assert whole["hidden"] == 0
    monkeypatch.setattr(graph_difference, "MOST_ROWS", 1)
    cut = plan_difference(without, plan(graph))
    assert (cut["summary"], cut["rows"], cut["hidden"]) == (whole["summary"], whole["rows"][:1], len(whole["rows"]) - 1)
    assert json.loads(json.dumps(cut)) == cut


def messages(view):
    sent = []
    view.send = lambda content, buffers=None: sent.append(content)
    return sent


def test_the_view_sends_the_difference_with_the_plan_and_a_preview_without_it(graph):
    view = GraphView(plan(graph))
    sent = messages(view)
    after = plan(graph, ("stem", {"quantize_input": False}))
    view.preview(after)
    assert sent[-1]["type"] == "preview"
    assert sent[-1]["difference"]["summary"] == "-1 pair"
    assert list(sent[-1]["pairs"].values()) == [[]]
    assert view.plan.placements == plan(graph).placements
    view.preview(None)
    assert sent[-1] == {"type": "preview", "pairs": {}, "difference": None}
    view.set_plan(after)
    assert sent[-1]["difference"]["summary"] == "-1 pair"
    view.set_plan(after)
    assert "difference" not in sent[-1]


def test_the_bench_tells_verdicts_of_every_step_and_previews_cases_and_fixes(model):
    bench = Workbench(model, target="onnxruntime")
    sent = messages(bench.view.graph)
    bench.toggle("stem", "input")
    assert sent[-1]["difference"]["summary"] == "-1 pair, 3 layers now in float"
    bench.view.graph.selection = ("stem",)
    pane = bench.view.pane(InspectorPane)
    pane.show(("stem",))
    assert pane._preview.layout.display == ""
    pane._preview.click()
    assert (sent[-1]["type"], sent[-1]["difference"]["summary"]) == ("preview", "+1 pair, 3 layers now in INT8")
    assert len(bench.history) == 2
    bench.undo()
    assert sent[-1]["difference"]["summary"] == "+1 pair, 3 layers now in INT8"
    bench.view.side.open(CasesPane)
    cases = bench.view.pane(CasesPane)
    cases.picker.value = "MaxPoolQDQCase"
    before = len(sent)
    cases.show.click()
    assert [message["type"] for message in sent[before:]] == ["preview"]


def test_the_graph_shows_what_the_target_runs_unless_there_are_no_rules_for_it(model):
    bench = Workbench(model, target="onnxruntime")
    assert bench.coloring == "precision"
    assert bench.view.graph.colors["mode"] == "precision"


def test_a_loaded_plan_is_not_compared_with_what_was_drawn(tmp_path, bench):
    bench.toggle("conv", "input")
    bench.save(tmp_path / "kept")
    bench.undo()
    sent = messages(bench.view.graph)
    bench.load(tmp_path / "kept")
    plans = [message for message in sent if message["type"] == "plan"]
    assert plans[-1]["pairs"]
    assert not [message for message in plans if "difference" in message]
    bench.undo()
    assert sent[-1]["difference"]["summary"].startswith("+1 pair")
