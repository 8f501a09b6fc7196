"""States and their plans: what is planned once, what is asked again, and which plans are the same."""

import copy
import dataclasses

import pytest
from mock_graphs import GraphMaker, chain
from own_configs import FourBits

import qdq_workbench as qdq
from qdq_widgets.state import (
    RECENT_PLANS,
    BenchState,
    Planner,
    case_names,
    decided,
    diff_rows,
    is_all_there_is,
    plan_key,
    sharing,
    site_text,
    spec_of,
)

GRAPH = chain(("Conv2D", "conv"), ("ReLU", "relu"), ("Conv2D", "last"))


class OwnCase(qdq.CustomQDQInsertionCase):
    """Leaves a layer in float, and notes what it was asked with."""

    asked = ()

    def case(self, keras_model, qspec):
        self.asked = (*self.asked, keras_model)
        spec = qdq.QuantizationSpec()
        spec.add("pool", quantize_input=False, quantize_weight=False)
        return spec


class DerivedCase(qdq.ResNetV1QDQCase):
    """A case of the library that a user changed."""


def entries(*names, **wishes):
    spec = qdq.QuantizationSpec()
    for name in names:
        spec.add(name, **wishes)
    return spec


@pytest.fixture
def planner(model):
    return Planner(model)


def test_equal_states_have_one_plan_and_the_oldest_of_many_is_planned_anew(planner):
    first = planner.plan(BenchState(entries("conv", quantize_weight=False)))
    assert planner.plan(BenchState(entries("conv", quantize_weight=False))) is first
    for number in range(RECENT_PLANS - 1):
        planner.plan(BenchState(entries(*["conv"] * (number + 1))))
    assert planner.plan(BenchState(entries("conv", quantize_weight=False))) is first
    planner.plan(BenchState(entries("head")))
    again = planner.plan(BenchState(entries("conv", quantize_weight=False)))
    assert again is not first
    assert again == first


@pytest.mark.parametrize("change", [{"mode": "partial"}, {"target": "onnxruntime"}, {"cases": (qdq.BNQDQCase(),)}])
def test_a_state_with_another_field_is_another_state(planner, change):
    state = BenchState(entries("conv"))
    plan = planner.plan(state)
    other = planner.plan(state.replace(**change))
    assert other is not plan
    assert (other.mode, other.target) == (change.get("mode", "full"), change.get("target", "tensorrt"))


def test_a_case_of_the_users_is_asked_every_time_with_the_keras_model(planner):
    case = OwnCase()
    state = BenchState(qdq.QuantizationSpec(), (case,))
    first, second = planner.plan(state), planner.plan(state)
    assert case.asked == (planner.model, planner.model)
    assert first == second
    assert first is not second
    assert first.graph is second.graph is planner.graph  # one graph for a whole history
    assert first.for_layer("pool").author == "OwnCase"


@pytest.mark.parametrize(
    ("cases", "config", "follows"),
    [
        ((), None, True),
        ((qdq.ResNetV1QDQCase(), qdq.AutoQDQCase()), None, True),
        ((qdq.ResNetV1QDQCase(), OwnCase()), None, False),
        ((DerivedCase(),), None, False),
        ((), qdq.LayerQuantizeConfig(weight={"num_bits": 4}), True),
        ((), FourBits(), False),
    ],
)
def test_a_plan_follows_from_its_state_unless_something_of_the_users_decides(cases, config, follows):
    spec = entries("relu")
    spec.add("conv", quantize_config=config)
    assert is_all_there_is(BenchState(spec, cases)) is follows


def test_all_that_is_possible_is_known_per_target(planner):
    everything = planner.possible("tensorrt")
    for number in range(RECENT_PLANS):
        planner.plan(BenchState(entries(*["head"] * (number + 1), "conv")))
    assert planner.possible("tensorrt") is everything
    assert planner.possible("onnxruntime").target == "onnxruntime"
    outputs = {placement.layer for placement in everything.placements if placement.site == "output"}
    assert {"conv", "relu", "add", "pool"} <= outputs


def test_the_usual_inputs_are_all_where_nothing_is_decided(planner):
    node = planner.graph.node
    assert planner.usual_inputs(node("add"), "tensorrt") == (0, 1)
    assert planner.usual_inputs(node("image"), "tensorrt") == ()


def test_an_entry_is_taken_out_by_its_position():
    state = BenchState(entries("a", "b", "c"), mode="partial")
    shorter = state.without_entry(1)
    assert [entry.name for entry in shorter.spec.layers] == ["a", "c"]
    assert shorter.mode == "partial"
    assert [entry.name for entry in state.spec.layers] == ["a", "b", "c"]
    assert spec_of(iter(())).layers == []


def test_equal_parts_of_two_plans_are_kept_once():
    plan = qdq.plan_placement(GRAPH)
    other = qdq.plan_placement(GRAPH, quantization_spec=entries("last", quantize_weight=False))
    twin = copy.deepcopy(other)
    plan_key(twin)
    shared = sharing(twin, plan)
    assert shared == other
    assert not {"_bench_key", "tensors"} & set(vars(shared))  # what a plan in use computes
    own = {placement for placement in shared.placements if not any(placement is one for one in plan.placements)}
    assert {placement.layer for placement in own} == {"last"}
    assert shared.decisions["conv"] is plan.decisions["conv"]
    assert shared.decisions["last"] is twin.decisions["last"]


def test_the_key_of_a_plan_is_what_its_model_follows_from():
    plan = qdq.plan_placement(GRAPH, target="onnxruntime")
    first, *others = plan.placements
    for change, same in (
        ({"reason": "because", "author": "me", "replaced": ("you",)}, True),
        ({"scale_group": "image"}, False),
        ({"tensor": "relu"}, False),
        ({"quantizer": dataclasses.replace(first.quantizer, num_bits=4)}, False),
        ({"input_index": 1}, False),
    ):
        changed = dataclasses.replace(plan, placements=(dataclasses.replace(first, **change), *others))
        assert (plan_key(changed) == plan_key(plan)) is same, change
    assert plan_key(dataclasses.replace(plan, target="tensorrt")) != plan_key(plan)
    assert plan_key(dataclasses.replace(plan, placements=tuple(others))) != plan_key(plan)


def test_what_the_target_alone_adds_is_not_decided():
    plan = qdq.plan_placement(GRAPH, target="onnxruntime")
    assert {placement.layer for placement in plan.placements if placement.author == "target"} == {"relu", "last"}
    assert decided(plan) == ["conv", "last"]
    floats = qdq.plan_placement(GRAPH, quantization_spec=entries("last", quantize_input=False, quantize_weight=False))
    assert decided(floats) == ["conv"]
    unplaced = dataclasses.replace(plan, placements=tuple(p for p in plan.placements if p.layer != "conv"))
    assert decided(unplaced) == ["last"]


def test_the_rows_of_a_difference_are_what_came_what_went_and_what_changed():
    maker = GraphMaker()
    maker.add("Conv2D", "conv", "image")
    maker.add("Add", "sum", "conv", "image")
    graph = maker.graph("sum")
    before = qdq.plan_placement(graph)
    spec = entries("sum", quantization_index=[1], quantize_output=True)
    spec.add("conv", quantize_input=False, quantize_config=qdq.LayerQuantizeConfig(weight={"quantizer": "lsq"}))
    rows = diff_rows(before.diff(qdq.plan_placement(graph, quantization_spec=spec)))
    assert [row[:4] for row in rows] == [
        ("+", "sum", "input 1", "int8"),
        ("+", "sum", "output", "int8"),
        ("-", "conv", "input 0", "int8"),
        ("±", "conv", "kernel", "int8/axis 3, lsq"),
    ]
    assert rows[0][4].startswith("spec[0]: the entry for")
    assert rows[2][4].startswith("default: ")


def test_sites_and_cases_have_names():
    plan = qdq.plan_placement(GRAPH, target="onnxruntime")
    assert [site_text(placement) for placement in plan.placements] == [
        *("input 0", "kernel", "output"),
        *("input 0", "kernel", "output"),
    ]
    assert case_names([qdq.BNQDQCase(), OwnCase()]) == ["BNQDQCase", "OwnCase"]
