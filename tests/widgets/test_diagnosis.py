"""Diagnosis from the bench and from its pane: found, measured, taken over in one undoable step."""

import pytest
from small_benches import tiny_data

from qdq_widgets import Workbench
from qdq_widgets.errors import BenchError
from qdq_widgets.panes.diagnosis import DiagnosisPane, causes_table
from qdq_widgets.state import plan_key


@pytest.fixture(scope="module")
def bench(model):
    """A calibrated bench with weights of two bits."""
    made = Workbench(model, train_data=tiny_data(), validation_data=tiny_data(32), target="onnxruntime")
    made.configure("conv", "weight", num_bits=2)
    made.calibrate()
    return made


@pytest.fixture(scope="module")
def diagnosed(bench):
    """The bench with a diagnosis by SQNR, which a handful of samples can tell."""
    with pytest.raises(BenchError, match="Nothing was diagnosed"):
        bench.apply_cause()
    bench.diagnose(samples=32, metric="sqnr")
    return bench


def test_a_fix_of_the_plan_is_one_undoable_step(diagnosed):
    place = next(i for i, cause in enumerate(diagnosed.diagnosis.causes) if cause.tensor == "conv/kernel")
    before = diagnosed.plan
    assert "2 bits" in diagnosed.diagnosis.causes[place].evidence
    step = diagnosed.apply_cause(place)
    assert step.label == diagnosed.diagnosis.causes[place].fix
    bits = {p.quantizer.num_bits for p in diagnosed.plan.placements if p.tensor == "conv/kernel"}
    assert bits in ({8}, set())
    diagnosed.undo()
    assert plan_key(diagnosed.plan) == plan_key(before)


def test_every_fix_is_measured_on_a_copy(diagnosed):
    diagnosed.diagnose(samples=32, metric="sqnr")  # the pane may have found others
    before = diagnosed.plan
    found = diagnosed.try_fixes()
    assert found is diagnosed.diagnosis
    assert all((cause.gain is None) == cause.changes_function for cause in found.causes)
    assert not any(cause.applied for cause in found.causes if cause.changes_function)  # only labels could tell
    assert any(cause.applied for cause in found.causes)
    assert diagnosed.plan is before
    with pytest.raises(BenchError, match="counted from 0"):
        diagnosed.apply_cause(len(found.causes))


def test_the_pane_finds_measures_shows_and_uses(diagnosed):
    diagnosed.view.work.open(DiagnosisPane)
    pane = diagnosed.view.pane(DiagnosisPane)
    pane.samples.value = 16
    pane.run.click()
    assert diagnosed.jobs.wait(120)
    assert pane.errors.message == ""
    found = diagnosed.diagnosis
    assert found.metric == "accuracy"
    assert pane._table.value == causes_table(found)
    assert len(pane.cause.options) == len(found.causes)
    assert pane.cause.value == pane.cause.options[0]  # what the buttons beside it act on is what it shows
    pane.try_all.click()
    assert diagnosed.jobs.wait(120)
    assert pane.errors.message == ""
    assert all(f"{cause.gain:+.4g}" in pane._table.value for cause in found.causes)
    pane.cause.index = next(i for i, cause in enumerate(found.causes) if cause.tensor == "conv/kernel")
    pane.show.click()
    assert list(diagnosed.view.graph.selection) == ["conv"]
    position = diagnosed.history.position
    pane.use.click()
    assert pane.errors.message == ""
    assert diagnosed.history.position == position + 1
    assert "The plan has changed since." in pane._note.value
    diagnosed.undo()


def test_a_fix_that_is_none_of_the_plan_says_what_to_do(model):
    x, y = tiny_data(32)
    bench = Workbench(model, calibration_data=0.01 * x, validation_data=(x, y), target="onnxruntime")
    bench.calibrate()
    bench.diagnose(samples=32, metric="sqnr")
    assert bench.diagnosis.causes[0].kind in ("data_range", "few_samples")
    with pytest.raises(BenchError, match="Calibrat"):
        bench.apply_cause(0)
