"""Undo and redo over everything that the user decides."""

import gc
import weakref

import pytest

import qdq_workbench as qdq
from qdq_widgets.errors import BenchError
from qdq_widgets.history import KEPT_PLANS
from qdq_widgets.state import RECENT_PLANS


def test_undo_and_redo_walk_over_toggles_cases_targets_modes_and_entries(bench):
    plans = [bench.plan]
    steps = (
        lambda: bench.toggle("conv", "input"),
        lambda: bench.apply_case(qdq.ResNetV1QDQCase()),
        lambda: bench.set_target("onnxruntime"),
        lambda: bench.add_entry("Add", is_keras_class=True),
        lambda: bench.set_mode("partial"),
        lambda: bench.remove_entry(0),
    )
    for step in steps:
        step()
        plans.append(bench.plan)
    for plan in reversed(plans[:-1]):
        bench.undo()
        assert bench.plan is plan
    for plan in plans[1:]:
        bench.redo()
        assert bench.plan is plan


def test_the_explanation_is_that_of_the_present_plan(bench):
    told = [bench.explanation]
    for step in (
        lambda: bench.toggle("conv", "weight"),
        lambda: bench.set_target("onnxruntime"),
        lambda: bench.toggle("conv", "weight"),
    ):
        step()
        told.append(bench.explanation)
        assert told[-1].plan is bench.plan
        assert told[-1] == qdq.explain(bench.plan, target=bench.plan.target)
    for known in reversed(told[:-1]):
        bench.undo()
        assert bench.explanation is known


def test_every_step_has_a_label_and_its_plan_diff(bench):
    bench.toggle("conv", "input")
    step = bench.history.present
    assert step.label == "toggle conv: input"
    assert [p.layer for p in step.diff.removed] == ["conv"]
    assert "1 pair less" in step.change
    assert repr(bench.history).splitlines()[1].startswith("→ 1  toggle conv: input")


def test_a_new_step_drops_what_was_undone(bench):
    bench.toggle("conv", "input")
    bench.undo()
    bench.toggle("stem", "input")
    assert [step.label for step in bench.history.steps] == ["start", "toggle stem: input"]
    with pytest.raises(BenchError, match="nothing to redo"):
        bench.redo()


def test_the_ends_of_the_history_say_so(bench):
    with pytest.raises(BenchError, match="nothing to undo"):
        bench.undo()
    with pytest.raises(BenchError, match="counted from 0"):
        bench.go_to(3)


def test_a_refused_step_leaves_no_trace(bench):
    with pytest.raises(qdq.QDQError):
        bench.add_entry("nothing_of_this_name")
    with pytest.raises(qdq.QDQError):
        bench.set_target("abacus")
    with pytest.raises(qdq.QDQError):
        bench.set_mode("half")
    assert len(bench.history) == 1
    assert len(bench.spec) == 0


def test_the_spec_that_is_handed_out_is_a_copy(bench):
    bench.spec.add("conv")
    assert len(bench.spec) == 0


def test_a_long_history_keeps_the_plans_of_the_last_steps_alone(bench):
    plans = []
    first = bench.plan.to_dict()
    for _ in range(5):
        for layer in ("conv", "stem", "head"):
            for site in ("input", "weight"):
                bench.toggle(layer, site)
                plans.append(weakref.ref(bench.plan))
    gc.collect()
    assert len(bench.history) == 31
    assert sum(plan() is not None for plan in plans) <= KEPT_PLANS + RECENT_PLANS + 1
    assert [p.layer for p in bench.history.steps[1].diff.removed] == ["conv"]
    assert bench.go_to(0).plan is bench.plan
    assert bench.plan.to_dict() == first


class OnceInTwo(qdq.CustomQDQInsertionCase):
    """A case whose answer nobody can know beforehand."""

    asked = 0

    def case(self, keras_model, qspec):
        type(self).asked += 1
        spec = qdq.QuantizationSpec()
        spec.add("add" if self.asked % 2 else "pool", quantize_output=True)
        return spec

    def info(self):
        return "now the sum, now the mean"


def test_the_plan_of_an_own_case_comes_back_as_it_was(bench):
    bench.apply_case(OnceInTwo())
    plans = [bench.plan.to_dict()]
    for _ in range(KEPT_PLANS + RECENT_PLANS):
        bench.toggle("conv", "input")
        plans.append(bench.plan.to_dict())
    bench.go_to(0)
    for place, plan in enumerate(plans, 1):
        assert bench.go_to(place).plan.to_dict() == plan
    steps = bench.history.steps
    assert all(step.plan.graph is bench.graph for step in steps)
    shared = set(map(id, steps[5].plan.placements)) & set(map(id, steps[6].plan.placements))
    assert len(shared) >= len(steps[5].plan.placements) - 4
