"""Search from the bench and from its section: tried, shown, taken over, undone."""

import functools

import pytest
from small_benches import stopped_when, tiny_data, tiny_model

import qdq_workbench as qdq
from qdq_widgets import Workbench
from qdq_widgets.errors import BenchError
from qdq_widgets.panes.sensitivity import SensitivityPane
from qdq_widgets.state import plan_key


@pytest.fixture(scope="module")
def bench(model):
    """A calibrated bench; what a test changes in the plan it takes back."""
    made = Workbench(model, train_data=tiny_data(), validation_data=tiny_data(32), target="onnxruntime")
    made.calibrate()
    return made


def test_a_floor_that_the_float_model_alone_reaches_leaves_layers_in_float_in_one_step(bench):
    before = bench.plan
    found = bench.search(1.0, metric=lambda reference, outputs, labels: float((reference == outputs).all()))
    assert bench.search_result is found
    assert found.met
    assert found.float_layers
    assert bench.plan is before
    step = bench.apply_search()
    assert step.label.startswith("searched placement, ")
    assert plan_key(bench.plan) == plan_key(found.plan)
    assert len(bench.spec) == len(found.best.levels)
    bench.undo()
    assert plan_key(bench.plan) == plan_key(before)


def test_the_weights_may_start_with_fewer_bits(bench):
    found = bench.search(0.0, weight_bits=4, samples=16)
    assert found.met
    assert {placement.quantizer.num_bits for placement in found.plan.placements if placement.site == "weight"} == {4}
    bench.apply_search()
    assert plan_key(bench.plan) == plan_key(found.plan)
    bench.undo()
    assert len(bench.spec) == 0


@pytest.mark.parametrize("samples", [0, -1, 1.5, "many", True, None])
def test_samples_are_a_number(bench, samples):
    for step in (lambda: bench.search(0.5, samples=samples), lambda: bench.sensitivity(samples=samples)):
        with pytest.raises(BenchError, match="samples must be a whole number"):
            step()


def test_what_was_searched_with_comes_back_with_the_placement(model):
    bench = Workbench(model, train_data=tiny_data(), validation_data=tiny_data(32), target="onnxruntime")
    found = bench.search(0.0, samples=8)
    bench.set_target("tensorrt")
    bench.apply_search()
    assert bench.state.target == "onnxruntime"
    assert plan_key(bench.plan) == plan_key(found.plan)


def test_what_is_missing_is_said(model):
    bench = Workbench(model, train_data=tiny_data())
    with pytest.raises(BenchError, match=r"wb\.search\(accuracy_floor=0\.9\)"):
        bench.apply_search()
    with pytest.raises(BenchError, match="validation_data="):
        bench.search(0.9)
    bare = Workbench(model, validation_data=tiny_data(8))
    bare.leave_in_float(["stem", "conv", "head"])
    with pytest.raises(BenchError, match="quantizes no weights"):
        bare.search(0.9, weight_bits=4)


def test_the_section_searches_and_takes_over(bench):
    bench.view.work.open(SensitivityPane)
    section = bench.view.pane(SensitivityPane).search
    assert section.weights.label == "as planned"  # a picker shows nothing for None
    section.weights.value, section.samples.value, section.floor.value = 4, 16, 0.0
    section.run.click()
    assert bench.jobs.wait(120)
    assert section.errors.message == ""
    assert "The floor is met with no layers raised, confirmed on 8 held-out samples" in section._note.value
    assert "weights" in section._note.value
    assert "What was tried (1)" in section._table.value
    assert not section.use.disabled
    section.use.click()
    assert section.errors.message == ""
    assert bench.history.present.label.startswith("searched placement")
    bench.undo()


def test_the_section_tries_cases_and_pairs_and_takes_the_placement_over(bench, monkeypatch):
    bench.view.work.open(SensitivityPane)
    section = bench.view.pane(SensitivityPane).search
    section.choices.value, section.together.value = "cases and pairs too", True
    section.weights.value, section.samples.value, section.floor.value = 0, 16, 0.0
    asked = []
    search = qdq.search
    monkeypatch.setattr(qdq, "search", lambda *them, **how: asked.append(how) or search(*them, **how))
    section.run.click()
    assert bench.jobs.wait(120)
    assert section.errors.message == ""
    assert {key: asked[0][key] for key in ("cases", "pairs", "share")} == {
        "cases": "auto",
        "pairs": True,
        "share": "patterns",
    }
    assert "as given" in section._table.value
    section.choices.value, section.together.value = "bits and float", False


class HeadInFloat(qdq.CustomQDQInsertionCase):
    """Leaves the last layer in float."""

    def case(self, keras_model, qspec):
        found = qdq.QuantizationSpec()
        found.add(keras_model.layers[-1].name, quantize_input=False, quantize_weight=False)
        return found


def test_a_placement_of_a_case_becomes_entries_of_the_spec_in_one_step(bench):
    before = bench.plan
    how = {"cases": [HeadInFloat()], "samples": 16, "bits": ()}
    found = bench.search(1.0, **how, evaluate=_head_is_float, confirm=functools.partial(_head_is_float))
    assert (found.met, found.best.case) == (True, "HeadInFloat")
    assert bench.search(1.0, **how, evaluate=_head_is_float).met is None
    assert "Its accuracy is not confirmed" in bench.search_result.reason
    bench.apply_search()
    assert plan_key(bench.plan) == plan_key(found.plan)
    assert [entry.name for entry in bench.spec.layers] == [bench.model.layers[-1].name]
    assert bench.model.layers[-1].name in bench.to_code()
    bench.undo()
    assert plan_key(bench.plan) == plan_key(before)


def _head_is_float(model):
    is_quantized = isinstance(model, qdq.results.QuantizedModel)
    return 0.0 if is_quantized and model.plan.for_layer(model.plan.graph.layers[-1]).quantize_weight else 1.0


def test_a_stopped_search_keeps_the_best_so_far_and_says_so(bench):
    bench.view.work.open(SensitivityPane)
    with stopped_when(bench, lambda job: job.label == "search" and job.text.startswith("0.")):
        found = bench.search(1.0, weight_bits=2, samples=32)
    assert not found.complete
    assert "was stopped" in bench.view.pane(SensitivityPane).search._note.value


def test_the_suggested_floor_is_a_little_below_the_float_models_accuracy_until_the_user_says_otherwise():
    bench = Workbench(tiny_model(), train_data=tiny_data(), validation_data=tiny_data(32))
    bench.view.work.open(SensitivityPane)
    section = bench.view.pane(SensitivityPane).search
    assert section.floor.value == 0.9
    bench.calibrate()
    known = bench.curves.fp32.metrics[bench.curves.metric]
    assert section.floor.value == pytest.approx(max(0.0, known - 0.01), abs=1e-4)
    section.floor.value = 0.123
    section.refresh()
    assert section.floor.value == 0.123
