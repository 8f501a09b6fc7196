"""The inspector with several layers: it speaks of all of them, and its switches and fixes act on all."""

import pytest

from qdq_widgets import Workbench
from qdq_widgets.panes.inspector import InspectorPane

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
