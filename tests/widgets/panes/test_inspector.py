"""The inspector: texts about one layer; with several, it speaks of all of them and its switches act on all."""

import html
from types import SimpleNamespace

import pytest
from mock_graphs import GraphMaker, Weight

import qdq_workbench as qdq
from qdq_widgets import Workbench
from qdq_widgets.panes.inspector import InspectorPane, _details, _fix_text, _group_verdict, _in_file, _link

ALL = ("stem", "relu", "conv", "norm", "add", "pool", "head")


@pytest.fixture
def bench(model):
    return Workbench(model, target="onnxruntime")


@pytest.fixture
def pane(bench):
    pane = bench.view.pane(InspectorPane)
    bench.view.graph.selection = ALL
    return pane


def switch(pane, number):
    return pane.switches.children[number].children


def test_it_names_the_group_and_counts(pane):
    assert "7 layers" in pane._head.value
    assert "2 Conv2D" in pane._head.value
    toggles = [switch(pane, number) for number in range(3)]
    assert [toggle.description for toggle, _ in toggles] == ["I", "W", "O"]
    assert "inputs of the layers with weights" in toggles[0][1].value
    assert "3 of 3 quantized" in toggles[1][1].value
    assert all(f">{name}<" in pane._details.value for name in ALL)


def test_a_switch_of_the_group_acts_on_all_and_back(bench, pane):
    before = bench.plan
    switch(pane, 1)[0].value = False
    assert not [p for p in bench.plan.placements if p.site == "weight"]
    assert "0 of 3 quantized" in switch(pane, 1)[1].value
    switch(pane, 1)[0].value = True
    assert {p.layer for p in bench.plan.placements if p.site == "weight"} == {"stem", "conv", "head"}
    assert not before.diff(bench.plan)


def test_inputs_come_back_for_layers_with_weights_only(bench, pane):
    switch(pane, 0)[0].value = False
    assert not bench.plan.for_layer("stem").quantize_input
    switch(pane, 0)[0].value = True
    assert pane.errors.message == ""
    on = {p.layer for p in bench.plan.placements if p.site == "input" and p.author.startswith("spec")}
    assert on <= {"stem", "conv", "head"}
    assert bench.plan.for_layer("stem").quantize_input


def test_a_fix_for_the_group(bench, pane):
    bench.toggle(["stem", "conv"], "weight")
    assert pane._fix.description == "Fix 3 of them"
    pane._fix.click()
    assert pane.errors.message == ""
    assert bench.explanation.for_layer("stem").status == bench.explanation.for_layer("conv").status == "int8"


def test_bits_for_the_group(bench, pane):
    assert "As head has them; a change goes to all 7" in pane.quantizers._note.value
    pane.quantizers.pickers["weight", "quantizer"].value = "lsq"
    assert pane.errors.message == ""
    labels = {p.method.label for p in bench.plan.placements if p.site == "weight" and p.method is not None}
    assert labels == {"lsq"}


def test_one_layer_again_has_its_own_switches(bench, pane):
    bench.view.graph.selection = ("add",)
    assert len(pane.switches.children) == 4
    bench.view.graph.selection = ("stem", "add")
    assert len(pane.switches.children) == 3
    bench.view.graph.selection = ()
    assert "Click a layer" in pane._head.value


@pytest.mark.parametrize(("names", "count"), [(("conv",), 3), (("stem", "conv"), 3), (("add",), 4)])
def test_what_was_selected_before_nothing_has_its_switches_again(bench, pane, names, count):
    for selection in (names, (), names):
        bench.view.graph.selection = selection
    assert len(pane.switches.children) == count
    assert f">{names[0]}<" in pane._head.value + pane._details.value
    switch(pane, count - 2)[0].value = False  # the weights
    assert pane.errors.message == pane.bench.view.errors.message == ""
    if names != ("add",):
        assert not bench.plan.for_layer(names[0]).quantize_weight


def test_a_click_that_comes_late_on_switches_of_before_changes_nothing(bench, pane):
    gone = switch(pane, 1)[0]
    bench.view.graph.selection = ("add",)
    plan = bench.plan
    gone.value = not gone.value
    assert bench.plan is plan
    bench.view.graph.selection = ALL
    assert switch(pane, 1)[0] is gone
    assert gone.value is True


# ---------------------------------------------------------------------- one layer


def test_a_layer_has_its_own_verdict_title_and_buttons(bench, pane):
    bench.select("stem")
    assert '<div class="qdq-title">stem</div><div class="qdq-muted">Conv2D</div>' in pane._head.value
    assert "runs in INT8</b>" in pane._verdict.value
    assert pane._like.tooltip == "Quantize every Conv2D as this one is"
    assert (pane._fix.layout.display, pane._like.layout.display) == ("none", "")
    bench.toggle("stem", "weight")
    assert pane._fix.description == "Make it INT8"
    assert pane._fix.tooltip.startswith("Add to the spec: name='stem'")
    bench.select(["stem", "conv"])
    assert pane._like.layout.display == "none"
    bench.select("stem")
    assert pane._like.layout.display == ""


def test_like_this_one_for_all_of_its_class(bench, pane):
    bench.select("stem")
    switch(pane, 1)[0].value = False
    pane._like.click()
    assert bench.history.present.label == "like stem: its class"
    assert not bench.plan.for_layer("conv").quantize_weight


def test_a_preview_of_a_fix_draws_it_and_applies_nothing(bench, pane):
    bench.toggle("stem", "weight")
    bench.select("stem")
    drawn = []
    bench.view.preview = drawn.append
    pane._preview.click()
    assert pane.errors.message == ""
    assert drawn == [bench._plans.state_with_fix("stem")]
    assert bench.history.position == 1


def test_switches_say_which_site_they_are_and_why_they_are_off(bench, pane):
    bench.select("add")
    notes = [html.unescape(switch(pane, number)[1].value) for number in range(4)]
    assert ">input 0 ← norm<" in notes[0]
    assert ">input 1 ← relu<" in notes[1]
    assert "float. Add has no weights." in notes[2]
    assert switch(pane, 2)[0].disabled
    assert switch(pane, 0)[0].tooltip.startswith("Input 0 is quantized already, by the output pair of 'norm'")
    bench.select("conv")
    assert switch(pane, 1)[0].tooltip == "Switch weights"
    assert ">input ← relu<" in html.unescape(switch(pane, 0)[1].value)


def test_a_setting_that_is_refused_is_shown_as_it_was(bench, pane):
    bench.select("conv")
    pane._configure("weight", "num_bits", 99)
    assert "num_bits" in pane.errors.message
    assert bench.history.position == 0
    pane._configure("weight", "num_bits", 4)
    assert pane.errors.message == ""
    pane._configure("weight", "", None)
    assert bench.history.present.label == "configure conv: weight as the target wants"


def test_a_layer_that_is_gone_is_no_longer_selected(pane):
    pane.show(["stem", "nowhere"])
    assert ">stem<" in pane._head.value
    pane.show(["nowhere"])
    assert "Click a layer" in pane._head.value
    assert ">Q/DQ pairs<" in pane._details.value
    assert pane.switches.layout.display == pane._verdict.layout.display == "none"


# ---------------------------------------------------------------------- texts


def entry(status, rule="ORT-CONV"):
    return SimpleNamespace(status=status, rule=rule)


@pytest.mark.parametrize(
    ("entries", "look", "words"),
    [
        ([entry("int8")] * 2, "int8", "2 run in INT8"),
        ([entry("int8"), entry("float")], "partial", "1 run in INT8; 1 run in float"),
        ([entry("float"), entry("int8", "ORT-VANISHES")], "float", "1 run in float; 1 have nothing of it to run"),
        ([entry("int8", "ORT-VANISHES")], "vanishes", "1 have nothing of it to run"),
    ],
)
def test_the_verdict_of_a_group_counts_and_has_the_colour_of_all_that_run(entries, look, words):
    page = _group_verdict("<ORT>", entries)
    assert page == f'<div class="qdq-verdict qdq-{look}"><b>&lt;ORT&gt;</b>: {words}</div>'


@pytest.mark.parametrize("address", ["", "http://a.org", "javascript:alert(1)", " https://a.org"])
def test_other_addresses_are_no_links(address):
    assert _link(address) == ""
    assert 'href="https://a.org/?x=&quot;"' in _link('https://a.org/?x="')


def test_what_a_fix_adds_is_shown_as_arguments():
    assert _fix_text({"name": "conv", "quantize_output": True}) == "name='conv', quantize_output=True"


@pytest.mark.parametrize(
    ("operators", "has", "reason", "text"),
    [
        (("Conv", "Relu"), True, "", "Conv, Relu"),
        (("Conv",), True, "split", "Conv: split"),
        ((), True, "", "one of its inputs"),
        (None, True, "", "what the converter makes of it"),
        (None, True, "unknown", "what the converter makes of it: unknown"),
        ((), False, "it vanishes", "nothing: it vanishes"),
    ],
)
def test_the_operators_in_the_file(operators, has, reason, text):
    assert _in_file(SimpleNamespace(has_operators=has, operators=operators, reason=reason)) == text


def test_the_details_of_a_layer_are_its_decision_its_pairs_and_its_shapes():
    maker = GraphMaker("image", "mask", shape=(None, None, 4))
    maker.add("Dense", "one", "image", weights=(Weight("kernel", (4, 300)),), settings={"units": 300})
    maker.add("Dense", "one#1", "one", layer="one", weights=(Weight("kernel", (4, 300)),))
    maker.add("Add", "sum", "one#1", "<mask>")
    maker.tensors["<mask>"] = maker.tensors["mask"]
    graph = maker.graph("sum")
    spec = qdq.QuantizationSpec()
    spec.add("Dense", is_keras_class=True)
    spec.add("one", quantize_weight=True)
    plan = qdq.plan_placement(graph, quantization_spec=spec)
    page = html.unescape(_details(graph, plan, graph.node("one"), {}))
    assert ">image (?, ?, 4) float32<" in page
    assert ">(4, 300), 1,200 values<" in page
    assert ">units<" in page
    assert "(replaced spec[0])" in page
    assert "scale group" not in page  # a column without cells
    second = html.unescape(_details(graph, plan, graph.node("one#1"), {}))
    assert second.count(">input 0<") == page.count(">input 0<") == 1  # of this call alone
    assert second.count(">kernel<") == page.count(">kernel<") == 2  # the pair and the weight, of all calls
    first = html.unescape(_details(graph, plan, graph.node("image"), {}))
    assert "Nothing is quantized." in first
    assert ">reads</td>" in first
    assert ">nothing<" in first
