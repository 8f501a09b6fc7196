"""What planning does with a graph alone; cases and configs that look at layers have tests of their own."""

import dataclasses
import types

import pytest
from mock_graphs import GraphMaker, chain, residual

import qdq_workbench as qdq
from qdq_workbench import cases
from qdq_workbench.errors import SpecError, TargetError
from qdq_workbench.placement.planner import override_tensors
from qdq_workbench.placement.targets import get_target
from qdq_workbench.planning import decisions_by_spec, plan_placement, replace_cases, retarget_plan
from qdq_workbench.spec import QuantizationSpec


def spec_of(*names, **settings):
    spec = QuantizationSpec()
    for name in names:
        spec.add(name, **settings)
    return spec


class Named(cases.GraphCase):
    """Names one layer; its own name and its target are told."""

    def __init__(self, *layers, name="Mine"):
        self.layers, self._name, self.target = layers, name, None

    @property
    def name(self):
        return self._name

    def for_target(self, target):
        self.target = target.name
        return self

    def case_for_graph(self, graph, qspec):
        return spec_of(*self.layers, quantize_weight=False)


@pytest.mark.parametrize("given", [["conv"], {"layers": []}, QuantizationSpec])
def test_a_specification_is_one(given):
    with pytest.raises(SpecError, match=r"must be a QuantizationSpec.*Received: (list|dict|type)$"):
        plan_placement(residual("Conv2D"), quantization_spec=given)


def test_a_case_is_asked_for_the_target_and_signs_with_its_name():
    case = Named("add", name="Skips")
    plan = plan_placement(residual("Conv2D"), custom_qdq_cases=iter([case]), target="litert")
    assert plan.for_layer("add").author == "Skips"
    assert case.target == "litert"
    unnamed = Named("add", name="")
    assert plan_placement(residual("Conv2D"), custom_qdq_cases=[unnamed]).for_layer("add").author == "Named"


def test_what_looks_like_a_case_is_one():
    like = types.SimpleNamespace(case=lambda model, spec: spec_of("add"))
    with pytest.raises(SpecError, match="The case SimpleNamespace looks at Keras layers"):
        plan_placement(residual("Conv2D"), custom_qdq_cases=[like])
    with pytest.raises(SpecError, match=r"instances of CustomQDQInsertionCase.*Received: 'MaxPoolQDQCase'"):
        plan_placement(residual("Conv2D"), custom_qdq_cases=["MaxPoolQDQCase"])


def test_a_case_of_the_graph_that_overrides_case_wants_the_model():
    class ByLayers(Named):
        def case(self, keras_model, qspec):
            return QuantizationSpec()

    with pytest.raises(SpecError, match="The case Mine looks at Keras layers"):
        plan_placement(residual("Conv2D"), custom_qdq_cases=[ByLayers("add")])


def test_a_case_that_finds_nothing_may_return_none():
    class Nothing(Named):
        def case_for_graph(self, graph, qspec):
            return None

    assert plan_placement(residual("Conv2D"), custom_qdq_cases=[Nothing()]) == plan_placement(residual("Conv2D"))


class TestExplain:
    def test_a_graph_is_planned_for_the_target_that_is_named(self):
        assert qdq.explain(residual("Conv2D")).target == "onnxruntime"
        assert qdq.explain(residual("Conv2D"), "litert").target == "litert"

    def test_a_plan_is_that_of_what_holds_it(self):
        plan = plan_placement(residual("Conv2D"), target="tensorrt")
        held = types.SimpleNamespace(plan=plan, opset=21)
        found = qdq.explain(held)
        assert (found.plan, found.opset) == (plan, 21)
        assert qdq.explain(held, opset=17).opset == 17
        assert qdq.explain(plan).opset is None

    @pytest.mark.parametrize("opset", [True, "21", 21.5])
    def test_an_opset_is_an_integer_also_that_of_a_file(self, opset):
        plan = plan_placement(residual("Conv2D"))
        for arguments in ((plan, opset), (types.SimpleNamespace(plan=plan, opset=opset), None)):
            with pytest.raises(SpecError, match=f"opset must be an integer.*opset={opset!r}"):
                qdq.explain(arguments[0], opset=arguments[1])

    def test_an_altered_target_is_meant_by_its_name(self):
        altered = dataclasses.replace(get_target("onnxruntime"), bias="float")
        plan = plan_placement(residual("Conv2D"), target=altered)
        assert qdq.explain(plan, "onnxruntime").plan is plan
        assert qdq.explain(plan, get_target("onnxruntime")).plan.altered_target is None


class TestRetargeting:
    def test_the_own_target_changes_nothing(self):
        plan = plan_placement(residual("Conv2D"), target="litert")
        assert retarget_plan(plan, "litert") is plan
        assert retarget_plan(plan, get_target("litert")) is plan
        with pytest.raises(TargetError):
            retarget_plan(plan, "litter")

    def test_a_case_of_ones_own_keeps_what_it_decided(self):
        case = Named("add")
        plan = plan_placement(residual("Conv2D"), custom_qdq_cases=[case], target="tensorrt")
        case.target = None
        assert retarget_plan(plan, "onnxruntime").decisions == plan.decisions
        assert case.target is None

    def test_the_automatic_case_beside_another_keeps_what_both_decided(self):
        graph = residual("Conv2D", "MaxPooling2D")
        both = [cases.AutoQDQCase(), Named("stem")]
        plan = plan_placement(graph, custom_qdq_cases=both, target="tensorrt")
        assert {each.author for each in plan.decisions.values()} >= {"AutoQDQCase", "Mine"}
        assert retarget_plan(plan, "onnxruntime").decisions == plan.decisions

    def test_the_automatic_case_decides_again_unless_its_decisions_were_changed(self):
        graph = residual("Conv2D", skip=("Conv2D",))
        plans = {
            name: plan_placement(graph, custom_qdq_cases=[cases.AutoQDQCase()], target=name)
            for name in ("tensorrt", "onnxruntime")
        }
        assert plans["tensorrt"].decisions != plans["onnxruntime"].decisions
        assert retarget_plan(plans["tensorrt"], "onnxruntime") == plans["onnxruntime"]
        add = dataclasses.replace(plans["tensorrt"].decisions["add"], input_indices=(0,))
        changed = dataclasses.replace(plans["tensorrt"], decisions={**plans["tensorrt"].decisions, "add": add})
        assert retarget_plan(changed, "onnxruntime").decisions["add"] == add


class TestReplacingCases:
    graph = residual("Conv2D", "MaxPooling2D")

    def planned(self, mode="full", cases=(), **entry):
        spec = spec_of(**entry) if not entry else QuantizationSpec()
        if entry:
            spec.add(**entry)
        return plan_placement(self.graph, mode, spec, cases)

    def test_decisions_of_the_spec_stay_and_those_of_cases_go(self):
        plan = self.planned(cases=[Named("add")], name="maxpooling2d", quantize_weight=False)
        found = replace_cases(plan, self.graph, [Named("stem", name="Other")])
        authors = {name: decision.author for name, decision in found.decisions.items()}
        assert authors == {"stem": "Other", "conv2d": "default", "maxpooling2d": "spec[0]", "add": "default"}
        assert replace_cases(plan, self.graph, []).decisions["stem"].author == "default"

    def test_what_a_search_decided_and_what_was_overridden_stays(self):
        plan = self.planned(cases=[Named("add")])
        by_search = dataclasses.replace(plan.decisions["add"], author="search")
        plan = dataclasses.replace(plan, decisions={**plan.decisions, "add": by_search})
        assert replace_cases(plan, self.graph, []).decisions["add"] == by_search
        plan = override_tensors(self.planned(cases=[Named("add")]), {"add": {"num_bits": 4}})
        assert replace_cases(plan, self.graph, []).decisions["add"].overrides == {"add": {"num_bits": 4}}

    def test_in_partial_mode_a_plan_without_cases_stays_as_it_is(self):
        plan = self.planned("partial", name="add")
        assert replace_cases(plan, self.graph, []) is plan
        assert replace_cases(plan, self.graph, [Named("stem")]).decisions["stem"].author == "Mine"

    def test_in_partial_mode_cases_that_leave_nothing_change_nothing(self):
        plan = self.planned("partial", [Named("add")])
        assert replace_cases(plan, self.graph, []) is plan
        other = replace_cases(plan, self.graph, [Named("stem")])
        assert [name for name, decision in other.decisions.items() if not decision.is_float] == ["stem"]

    def test_in_partial_mode_what_only_a_case_named_goes_with_it(self):
        plan = self.planned("partial", [Named("add")], name="maxpooling2d")
        assert not plan.decisions["add"].is_float
        found = replace_cases(plan, self.graph, [])
        assert [name for name, decision in found.decisions.items() if not decision.is_float] == ["maxpooling2d"]

    def test_in_full_mode_nothing_may_be_left(self):
        graph = chain(("ReLU", "relu"))
        plan = plan_placement(graph, custom_qdq_cases=[Named("relu")])
        assert len(plan.placements) == 1
        assert replace_cases(plan, graph, []).placements == ()

    def test_cases_read_the_spec(self):
        class Reading(Named):
            def case_for_graph(self, graph, qspec):
                return spec_of(*(entry.name for entry in qspec.layers))

        found = replace_cases(self.planned(), self.graph, [Reading()], spec_of("add"))
        assert found.decisions["add"].author == "Mine"
        with pytest.raises(SpecError, match="must be a QuantizationSpec"):
            replace_cases(self.planned(), self.graph, [], ["add"])


def test_decisions_by_a_spec_do_not_ask_for_the_model():
    graph = residual("Conv2D")
    plan = plan_placement(graph, custom_qdq_cases=[Named("add")])

    def model():
        pytest.fail("only a QuantizeConfig needs the model")

    found = decisions_by_spec(
        plan, model, spec_of("add", quantize_config=qdq.LayerQuantizeConfig(activation={"num_bits": 4}))
    )
    assert (found["add"].author, found["add"].settings) == ("spec[0]", {"activation": {"num_bits": 4}})
    assert decisions_by_spec(plan, model, None) == plan_placement(graph).decisions


def test_a_graph_may_have_several_inputs_and_a_plan_leaves_its_own_spec_alone():
    maker = GraphMaker("a", "b")
    maker.add("Add", "sum", "a", "b")
    spec = spec_of("sum")
    plan = plan_placement(maker.graph("sum"), quantization_spec=spec)
    assert [pair.name for pair in plan.tensors] == ["a", "b"]
    assert spec == spec_of("sum")
    assert plan_placement(chain(("Conv2D", "conv")), target=get_target("litert")).target == "litert"
