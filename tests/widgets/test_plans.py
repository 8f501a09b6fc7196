"""The steps of a bench's plan: their labels, what they leave alone, and what is refused before anything changes."""

import numpy as np
import pytest

import qdq_workbench as qdq
from qdq_widgets.errors import BenchError
from qdq_widgets.events import Events
from qdq_widgets.plans import Plans


class Told(Events):
    """Events that can be counted."""

    def __init__(self):
        super().__init__()
        self.names = []
        self.subscribe(self.names.append)


@pytest.fixture
def plans(model):
    return Plans(model, None, (), "tensorrt", Told())


def one_entry(name="conv", **wishes):
    spec = qdq.QuantizationSpec()
    spec.add(name, **wishes)
    return spec


def names(plans):
    return [entry.name for entry in plans.state.spec.layers]


def test_a_bench_starts_from_a_copy_of_what_it_was_given(model):
    spec, case = one_entry(quantize_weight=False), qdq.ResNetV1QDQCase()
    plans = Plans(model, spec, iter([case]), "onnxruntime", Events())
    spec.add("head")
    assert names(plans) == ["conv"]
    assert (plans.state.cases, plans.state.mode, plans.plan.target) == ((case,), "full", "onnxruntime")
    assert plans.history.present.label == "start"


@pytest.mark.parametrize(
    ("step", "label"),
    [
        (lambda plans: plans.toggle("conv", "weight"), "toggle conv: weight"),
        (lambda plans: plans.toggle("add", "input", 1), "toggle add: input 1"),
        (lambda plans: plans.toggle(["add"], "input", 0), "toggle add: input 0"),
        (lambda plans: plans.toggle(("stem", "conv"), "weight"), "toggle 2 layers: weight"),
        (lambda plans: plans.configure("conv", "weight", num_bits=4), "configure conv: weight num_bits=4"),
        (
            lambda plans: plans.configure(["stem", "conv"], "weight", num_bits=4, symmetric=None),
            "configure 2 layers: weight num_bits=4, symmetric=default",
        ),
        (lambda plans: plans.apply_like("add", ["pool"]), "like add: 1 layers"),
        (lambda plans: plans.apply_case(qdq.ResNetV1QDQCase()), "apply ResNetV1QDQCase"),
        (lambda plans: plans.add_entry("st*", match="glob", quantize_weight=False), "add 'st*' (glob)"),
        (lambda plans: plans.set_spec(one_entry(quantize_weight=False)), "replace the spec"),
        (lambda plans: plans.set_target("litert"), "target litert"),
        (lambda plans: plans.weights_alone(), "weights alone: 4 bits, blocks of 32"),
        (lambda plans: plans.weights_alone(3, None), "weights alone: 3 bits"),
    ],
)
def test_every_step_has_a_label_and_is_told_once(plans, step, label):
    made = step(plans)
    assert made is plans.history.present
    assert made.label == label
    assert plans._events.names == ["plan"]
    assert plans.history.position == 1


def test_settings_that_are_reset_are_labelled_so(plans):
    plans.configure("conv", "weight", num_bits=4)
    assert plans.configure("conv", "weight").label == "configure conv: weight as the target wants"


def test_like_one_layer_for_its_class_or_for_others(plans):
    plans.toggle("stem", "weight")
    assert plans.apply_like("stem").label == "like stem: its class"
    assert not plans.plan.for_layer("conv").quantize_weight


def test_a_second_case_of_a_name_replaces_the_first_and_others_stay(plans):
    plans.apply_case(qdq.AutoQDQCase("tensorrt"))
    plans.apply_case(qdq.ResNetV1QDQCase())
    newer = qdq.AutoQDQCase("onnxruntime")
    assert plans.state_with_case(newer).cases[-1] is newer
    assert [case.name for case in plans.state_with_case(newer).cases] == ["ResNetV1QDQCase", "AutoQDQCase"]
    assert [case.name for case in plans.state.cases] == ["AutoQDQCase", "ResNetV1QDQCase"]  # nothing was applied


def test_only_a_case_that_is_applied_can_be_removed(plans):
    plans.apply_case(qdq.ResNetV1QDQCase())
    with pytest.raises(BenchError, match=r"Applied: \['ResNetV1QDQCase'\]. Received: 'BNQDQCase'"):
        plans.remove_case("BNQDQCase")
    assert plans.remove_case("ResNetV1QDQCase").label == "remove ResNetV1QDQCase"
    assert plans.state.cases == ()


@pytest.mark.parametrize("position", [-1, 2, True, 0.0, "0", None])
def test_an_entry_is_removed_by_its_place_from_the_start(plans, position):
    plans.set_spec(one_entry())
    plans.add_entry("head", quantize_weight=False)
    with pytest.raises(BenchError, match=rf"has 2 entries, counted from 0. Received: position={position!r}"):
        plans.remove_entry(position)
    assert plans.remove_entry(np.int64(1)).label.startswith("remove ")
    assert names(plans) == ["conv"]
    plans.remove_entry(0)
    assert names(plans) == []


def test_a_spec_is_copied_and_the_former_states_keep_theirs(plans):
    given = one_entry(quantize_weight=False)
    plans.set_spec(given)
    plans.add_entry("head", quantize_weight=False)
    given.add("stem")
    assert names(plans) == ["conv", "head"]
    assert [len(step.state.spec) for step in plans.history.steps] == [0, 1, 2]


def test_a_preview_applies_nothing(plans):
    before = plans.plan
    plan, diff = plans.preview(plans.state.replace(spec=one_entry(quantize_weight=False)))
    assert {(item.layer, item.site) for item in diff.removed} == {("conv", "weight")}
    assert not plan.for_layer("conv").quantize_weight
    assert plans.plan is before
    assert plans._events.names == []


def test_the_explanation_is_made_once_for_a_plan_that_comes_back(plans, monkeypatch):
    explained = []
    usual = qdq.explain
    monkeypatch.setattr(qdq, "explain", lambda plan, **named: explained.append(plan) or usual(plan, **named))
    first = plans.explanation
    assert plans.explanation is first
    plans.toggle("conv", "weight")
    assert plans.explanation is not first
    plans.history.undo()
    assert plans.explanation is first
    assert len(explained) == 2


def test_fixes_make_layers_run_in_int8_together_or_all_at_once(plans):
    plans.set_target("onnxruntime")
    with pytest.raises(BenchError, match=r"No layer has a fix.* Received: target='onnxruntime'"):
        plans.apply_fixes()
    plans.toggle(["stem", "conv"], "weight")
    before = plans.state
    fixed = plans.state_with_fix("stem")
    assert plans.state is before
    assert plans.planner.plan(fixed).for_layer("stem").quantize_weight
    assert plans.apply_fix("stem", "conv").label == "fix 2 layers"
    assert {plans.explanation.for_layer(name).status for name in ("stem", "conv")} == {"int8"}
    plans.toggle("stem", "weight")
    count = sum(bool(entry.fix) for entry in plans.explanation.layers)
    assert plans.apply_fixes().label == f"fix {count} layers"
    with pytest.raises(BenchError, match=r"no fix for this: .*Received: layers=\('stem', 'conv'\)"):
        plans.apply_fix("stem", "conv")


def test_a_fix_needs_a_layer(plans):
    with pytest.raises(BenchError, match=r"no fix for this: no layer was named. Received: layers=\(\)"):
        plans.state_with_fix()


def test_a_layer_without_a_fix_beside_one_that_has_one_is_no_error(plans):
    plans.set_target("onnxruntime")
    plans.toggle("stem", "weight")
    assert not plans.explanation.for_layer("head").fix
    assert plans.apply_fix("stem", "head").label == "fix 2 layers"
    assert plans.plan.for_layer("stem").quantize_weight


def test_weights_alone_replace_spec_cases_and_mode_until_undo(plans):
    plans.apply_case(qdq.ResNetV1QDQCase())
    plans.add_entry("conv", quantize_weight=False)
    plans.weights_alone(8, None, symmetric=False)
    assert (plans.state.mode, plans.state.cases) == ("partial", ())
    (placement,) = plans.plan.placements
    assert (placement.layer, placement.quantizer.num_bits, placement.quantizer.symmetric) == ("head", 8, False)
    plans.history.undo()
    assert (plans.state.mode, names(plans)) == ("full", ["conv"])


def test_a_step_that_cannot_be_planned_is_no_step(plans):
    before = plans.plan
    for step in (
        lambda: plans.set_mode("partial"),
        lambda: plans.set_target("nothing"),
        lambda: plans.add_entry("convv"),
        lambda: plans.weights_alone(99),
    ):
        with pytest.raises(qdq.QDQError):
            step()
    assert plans.plan is before
    assert (len(plans.history), plans._events.names) == (1, [])
