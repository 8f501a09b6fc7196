"""Sensitivity from the bench and from its pane: ranked, coloured, left in float, kept in the folder."""

from types import SimpleNamespace

import pytest
from small_benches import stopped_when, tiny_data, tiny_model

from qdq_widgets import Workbench
from qdq_widgets.errors import BenchError
from qdq_widgets.metrics import OUTPUT_SQNR, SENSITIVITY
from qdq_widgets.panes.sensitivity import SensitivityPane


@pytest.fixture(scope="module")
def bench(model):
    """A calibrated bench; what a test changes in the plan it takes back."""
    made = Workbench(model, train_data=tiny_data(), validation_data=tiny_data(32))
    made.calibrate()
    return made


def test_the_most_sensitive_layers_are_left_in_float_in_one_step(bench):
    report = bench.sensitivity(samples=16)
    assert bench.sensitivity_report is report
    assert report.complete
    metric = bench.metrics[SENSITIVITY]
    assert (metric.unit, metric.better) == ("dB", "high")
    assert [name for name, _ in metric.ranked()] == [entry.layer for entry in report.ranked()]
    worst = report.ranked()[0].layer
    step = bench.leave_in_float(1)
    assert step.label == f"leave the 1 most sensitive in float: {worst}"
    assert not bench.plan.for_layer(worst).quantize_weight
    assert bench.is_stale(metric)
    bench.undo()
    assert len(bench.spec) == 0
    with pytest.raises(Exception, match="top_k must be"):
        bench.leave_in_float(99)


def test_all_but_one_ranks_the_other_way_round(bench):
    report = bench.sensitivity("one_off", "accuracy", samples=16)
    metric = bench.metrics[SENSITIVITY]
    assert metric.better == "low"
    assert report.mode == "one_off"
    values = [value for _, value in metric.ranked()]
    assert values == sorted(values, reverse=True)


def test_a_plan_without_ranges_is_calibrated_inside(model):
    bench = Workbench(model, train_data=tiny_data())
    assert bench.sensitivity(samples=8).samples == 8
    assert bench.stage == "planned"
    with pytest.raises(BenchError, match="calibration_data="):
        Workbench(model).sensitivity()


def test_the_pane_runs_colours_and_acts(model):
    bench = Workbench(model, train_data=tiny_data())
    bench.calibrate()
    bench.view.work.open(SensitivityPane)
    pane = bench.view.pane(SensitivityPane)
    assert "Not measured yet" in pane._note.value
    pane.sqnr.click()
    assert bench.jobs.wait(120)
    assert pane.errors.message == ""
    assert OUTPUT_SQNR in pane._note.value
    assert pane._top.layout.display == "none"
    pane.samples.value = 16
    pane.run.click()
    assert bench.jobs.wait(120)
    assert pane.errors.message == ""
    assert "sqnr of the model&#x27;s outputs with only this layer quantized, on 16 samples" in pane._note.value
    worst = bench.metrics[SENSITIVITY].ranked()[0][0]
    [bars] = pane.figure.data
    bars._dispatch_on_click(SimpleNamespace(point_inds=[len(bars.y) - 1]), None)  # the one on top
    assert bench.selection == (worst,)
    pane.color.click()
    assert bench.coloring == SENSITIVITY
    assert bench.view.graph.colors["legend"]["unit"] == "dB"
    pane.top.value = 2
    pane.leave.click()
    assert "2 most sensitive" in bench.history.present.label
    assert "The plan has changed since" in pane._note.value
    assert "of an earlier plan" in bench.view.graph.colors["legend"]["title"]
    bench.undo()
    pane.sqnr.click()  # what was measured last is shown, also the second time
    assert bench.jobs.wait(120)
    assert OUTPUT_SQNR in pane._note.value


def test_a_stopped_sweep_keeps_what_it_measured_and_says_so(bench):
    bench.view.work.open(SensitivityPane)
    with stopped_when(bench, lambda job: job.fraction):  # at the first layer
        report = bench.sensitivity(samples=8)
    assert not report.complete
    assert "was stopped" in bench.view.pane(SensitivityPane)._note.value


def test_figures_and_report_come_back_from_the_folder(tmp_path):
    bench = Workbench(tiny_model(), train_data=tiny_data())
    bench.set_metric("mine", {"conv": 2.0}, "ms", better="low")
    bench.sensitivity(samples=8)
    bench.color_by("mine")
    bench.save(tmp_path / "bench")
    other = Workbench.load(tmp_path / "bench")
    assert other.metrics == bench.metrics
    assert other.sensitivity_report == bench.sensitivity_report
    bench.take_over_metrics([], None)
    assert bench.coloring == "precision"


def test_a_folder_keeps_which_plan_a_figure_is_of(tmp_path):
    bench = Workbench(tiny_model(), train_data=tiny_data())
    bench.set_metric("mine", {"conv": 2.0})
    bench.toggle("head", "weight")
    bench.sensitivity(samples=8)
    bench.undo()
    bench.toggle("conv", "weight")  # drops the plan that was swept
    bench.calibrate()
    bench.measure_sqnr()
    bench.toggle("stem", "weight")
    bench.save(tmp_path / "bench")
    other = Workbench.load(tmp_path / "bench", train_data=tiny_data())
    other.save(tmp_path / "again")
    for loaded in (other, Workbench.load(tmp_path / "again")):
        assert {name: loaded.is_stale(loaded.metrics[name]) for name in ("mine", SENSITIVITY, OUTPUT_SQNR)} == {
            "mine": False,
            SENSITIVITY: True,
            OUTPUT_SQNR: True,
        }
        loaded.undo()
        assert not loaded.is_stale(loaded.metrics[OUTPUT_SQNR])
        assert loaded.is_stale(loaded.metrics[SENSITIVITY])
