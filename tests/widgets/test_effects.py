"""What a change of the plan does: an estimate at once where there is a basis, measured values behind a pause."""

import dataclasses
import threading
import time

import numpy as np
import pytest
from small_benches import tiny_data, tiny_model

import qdq_workbench as qdq
from qdq_widgets import BenchError, Workbench
from qdq_widgets.effect_measuring import PlanMeasurer, is_easy
from qdq_widgets.header import effect_html

PATIENCE = 120


def plan_without(*layers, bits=None):
    spec = qdq.QuantizationSpec()
    for layer in layers:
        spec.add(layer, quantize_input=False, quantize_weight=False)
    return qdq.plan_placement(tiny_model(), "full", spec, target="onnxruntime")


@pytest.fixture(scope="module")
def shared():
    """A calibrated bench whose changes are measured without a pause; every test leaves its plan as it was."""
    bench = Workbench(tiny_model(), train_data=tiny_data(), validation_data=tiny_data(64), target="onnxruntime")
    bench.calibrate()
    bench.effects.pause = 0.0
    return bench


@pytest.fixture
def bench(shared):
    yield shared
    shared.effects.measuring = False
    shared.effects.wait(PATIENCE)
    while shared.history.can_undo:
        shared.undo()


def measured(bench):
    """Wait until everything is measured."""
    end = time.monotonic() + PATIENCE
    while bench.effects.present.state != "measured":
        assert time.monotonic() < end, bench.effects.present
        time.sleep(0.02)
    return bench.effects.present


def report_of(metric, mode, values, quantized, unit="", float_value=1.0):
    entries = tuple(
        qdq.results.SensitivityEntry(layer, value, unit, float_value, quantized, (0,), quantize_weight=True)
        for layer, value in values.items()
    )
    return qdq.results.SensitivityReport(
        "tiny", mode, metric, unit, metric != "mse", ("input", "weight"), entries, float_value, quantized, 32
    )


def test_a_change_is_measured_as_models_and_files_of_their_own_are(bench, tmp_path):
    before = bench.plan
    bench.effects.measuring = True
    bench.toggle("conv", "weight", on=False)
    effect = measured(bench)
    assert effect.note == ""
    assert effect.label == bench.history.present.label
    sizes = [
        qdq.export_onnx(bench._work.models.build(plan), tmp_path / "own.onnx", target="onnxruntime").bytes
        for plan in (before, bench.plan)
    ]
    assert (effect.size.change, effect.size.value) == (sizes[1] - sizes[0], sizes[1])
    images, labels = tiny_data(64)
    own = bench._work.models.build(bench.plan).predict(images, verbose=0)
    assert effect.score.value == pytest.approx(100 * np.mean(own.argmax(-1) == labels), abs=100 / 64)
    assert effect.time.measured
    assert effect.time.value > 0


def test_a_file_that_is_still_to_be_timed_is_kept(bench, monkeypatch):
    monkeypatch.setattr("qdq_widgets.effect_measuring._KEPT", 2)
    measurer = PlanMeasurer(bench._work, "accuracy")
    oldest, second, new = plan_without(), plan_without("conv"), plan_without("head")
    for plan in (oldest, second):
        measurer.size(plan)
    report = measurer.times(new, oldest)
    assert report.path.exists()
    assert report.baseline.total_ms > 0


def test_undo_knows_at_once_what_was_measured_and_the_way_back(bench):
    bench.effects.measuring = True
    bench.toggle("head", "weight", on=False)
    there = measured(bench)
    bench.undo()
    back = bench.effects.present
    assert (back.size.change, back.size.measured) == (-there.size.change, True)
    assert back.score.change == -there.score.change


def test_it_leaves_the_models_scores_and_files_of_the_bench_alone(bench):
    snapshot, weights = bench.snapshot, [w.copy() for w in bench.model.get_weights()]
    bench.effects.measuring = True
    bench.toggle("stem", "weight", on=False)
    measured(bench)
    assert bench.snapshot.model is None
    assert bench.snapshot.scores == {}
    assert bench.snapshot.size is None
    bench.undo()
    assert bench.snapshot == snapshot
    for before, after in zip(weights, bench.model.get_weights(), strict=True):
        np.testing.assert_array_equal(before, after)
    assert bench.jobs.current is None


def test_the_next_change_ends_a_measurement_and_waits_for_none(bench, monkeypatch):
    begun, go_on = threading.Event(), threading.Event()
    sized = []

    def slow(_self, _plan):
        begun.set()
        assert go_on.wait(PATIENCE)
        return 0.5

    def size(_self, plan):
        sized.append(plan)
        return 1000 + len(plan.tensors)

    monkeypatch.setattr(PlanMeasurer, "score", slow)
    monkeypatch.setattr(PlanMeasurer, "size", size)
    monkeypatch.setattr(PlanMeasurer, "times", lambda *_: None)
    monkeypatch.setattr(type(bench.effects), "_note_times", lambda *_: None)
    start = bench.plan
    bench.effects.measuring = True
    bench.toggle("conv", "weight", on=False)
    assert begun.wait(PATIENCE)
    between = bench.plan
    bench.toggle("head", "weight", on=False)  # while the score of the first change is held up
    assert bench.effects.present.label == bench.history.present.label
    monkeypatch.setattr(PlanMeasurer, "score", lambda _self, _plan: 0.75)
    go_on.set()
    effect = measured(bench)
    assert effect.label == bench.history.present.label
    assert effect.score.change == 0.0
    assert sized == [between, bench.plan]  # nothing more of the first change
    assert start not in sized


def test_the_next_change_ends_an_export_that_runs(bench, monkeypatch, tmp_path):
    begun, ended = threading.Event(), threading.Event()
    measured_size = PlanMeasurer.size

    def long_size(self, plan):
        end = time.monotonic() + PATIENCE
        try:
            while time.monotonic() < end:  # as the export of a large model
                qdq.export_onnx(self._model(plan), tmp_path / "long.onnx", target=plan.target)
                begun.set()
        except BaseException:
            ended.set()
            raise
        return measured_size(self, plan)

    monkeypatch.setattr(PlanMeasurer, "size", long_size)
    bench.effects.measuring = True
    bench.toggle("conv", "weight", on=False)
    first = bench.effects._timer
    assert begun.wait(PATIENCE)
    monkeypatch.setattr(PlanMeasurer, "size", measured_size)
    start = time.monotonic()
    bench.toggle("head", "weight", on=False)
    first.join(PATIENCE)
    assert time.monotonic() - start < PATIENCE / 2
    assert ended.is_set()
    effect = measured(bench)
    assert (effect.label, effect.note) == (bench.history.present.label, "")
    own = qdq.export_onnx(bench._work.models.build(bench.plan), tmp_path / "own.onnx", target="onnxruntime")
    assert effect.size.value == own.bytes


def test_a_long_task_comes_first_and_measuring_goes_on_behind_it(bench, monkeypatch):
    ran = []
    monkeypatch.setattr(PlanMeasurer, "score", lambda _self, plan: ran.append(bench.jobs.current) or 0.5)
    monkeypatch.setattr(PlanMeasurer, "size", lambda _self, _plan: 7)
    monkeypatch.setattr(PlanMeasurer, "times", lambda *_: None)
    monkeypatch.setattr(type(bench.effects), "_note_times", lambda *_: None)
    with bench.jobs.run("a long task"):
        bench.effects.measuring = True
        bench.toggle("conv", "weight", on=False)
        time.sleep(0.2)
        assert ran == []
        assert bench.effects.present.state == "estimated"
    measured(bench)
    assert ran == [None, None]


def test_a_long_task_waits_for_the_file_that_is_written_alone(bench, monkeypatch):
    writes, go_on, makes_way, runs, ends = (threading.Event() for _ in range(5))
    sized = []

    def size(_self, _plan):
        sized.append(bench.jobs.current)
        writes.set()
        assert go_on.wait(PATIENCE)
        return 7

    def task():
        with bench.jobs.run("a long task"):
            runs.set()
            assert ends.wait(PATIENCE)

    def on_event(event):
        if event == "effect" and bench.jobs.current is not None and bench.effects.present.state == "estimated":
            makes_way.set()

    monkeypatch.setattr("qdq_widgets.effects._PATIENCE", PATIENCE)
    monkeypatch.setattr(PlanMeasurer, "score", lambda _self, _plan: 0.5)
    monkeypatch.setattr(PlanMeasurer, "size", size)
    monkeypatch.setattr(PlanMeasurer, "times", lambda *_: None)
    monkeypatch.setattr(type(bench.effects), "_note_times", lambda *_: None)
    bench.subscribe(on_event)
    bench.effects.measuring = True
    bench.toggle("conv", "weight", on=False)
    assert writes.wait(PATIENCE)
    thread = threading.Thread(target=task)
    thread.start()
    assert makes_way.wait(PATIENCE)
    assert not runs.is_set()
    go_on.set()
    assert runs.wait(PATIENCE)
    assert sized == [None]  # the other plan's file was not begun
    ends.set()
    thread.join(PATIENCE)
    measured(bench)
    assert sized == [None] * 3


def test_what_fails_is_said_and_nothing_else_suffers(bench, monkeypatch):
    def fails(*_):
        raise qdq.QDQError("no such file. Received: path='x'")

    monkeypatch.setattr(PlanMeasurer, "times", fails)
    bench.effects.measuring = True
    bench.toggle("conv", "weight", on=False)
    effect = measured(bench)
    assert effect.note == "Not everything could be measured: no such file."
    assert effect.size.measured
    assert effect.time is None
    assert bench.toggle("conv", "weight").label


def test_it_is_off_until_a_bench_is_displayed_and_then_only_where_it_is_cheap(model):
    bench = Workbench(model, train_data=tiny_data(), validation_data=tiny_data(32), target="onnxruntime")
    assert not bench.effects.measuring
    bench.effects.begin()
    assert bench.effects.measuring
    bench.effects.measuring = False
    bench.effects.begin()
    assert not bench.effects.measuring  # who has switched it off, has

    without_data = Workbench(model, target="onnxruntime")
    without_data.effects.begin()
    assert not without_data.effects.measuring
    assert not is_easy(bench.graph, None)
    assert not is_easy(bench.graph, iter([tiny_data()]))
    monkey = pytest.MonkeyPatch()
    with monkey.context() as patched:
        patched.setattr("qdq_widgets.effect_measuring._EASY_MACS", 10.0)
        assert not is_easy(bench.graph, tiny_data())


def test_nothing_is_measured_before_there_are_ranges(model):
    bench = Workbench(model, train_data=tiny_data(), validation_data=tiny_data(32), target="onnxruntime")
    bench.effects.pause, bench.effects.measuring = 0.0, True
    bench.toggle("conv", "weight")
    assert bench.effects._timer is None
    assert bench.effects.present.size.change > 0
    bench.set_target("tensorrt")
    assert bench.effects.present is None  # figures of two runtimes are no effect of a change


def test_data_that_can_be_read_once_are_not_used_up(shared):
    once = iter([tiny_data()])
    work = dataclasses.replace(shared._work, data=dataclasses.replace(shared._work.data, validation=once))
    with pytest.raises(BenchError, match="read again"):
        PlanMeasurer(work, "accuracy")
    assert len(next(once)) == 2


def test_what_a_folder_held_is_no_change(bench, tmp_path):
    bench.toggle("conv", "weight", on=False)
    loaded = Workbench.load(bench.save(tmp_path / "bench"))
    assert loaded.effects.present is None
    loaded.toggle("conv", "weight", on=True)
    assert loaded.effects.present.size.change < 0


def test_the_direction_of_a_metric_is_that_of_its_sweep(bench):
    error = report_of("own error", "one_on", {"conv": 0.25}, 0.8, float_value=0.0)
    bench.take_over_metrics([], dataclasses.replace(error, higher_is_better=False))
    bench.leave_in_float(["conv"])
    assert bench.effects.present.score.change == -0.25
    assert 'class="qdq-better">own error ≈ \u22120.25' in effect_html(bench.effects.present)
    bench.take_over_metrics([], None)


def test_the_switch_in_the_bar(bench):
    view = bench.view
    assert not view.measuring.value
    view.measuring.value = True
    assert bench.effects.measuring
    bench.toggle("conv", "weight", on=False)
    measured(bench)
    assert "this change" in view.effect.value
    view.measuring.value = False
    assert not bench.effects.measuring


def test_the_scores_before_a_change_are_kept_until_the_plan_has_its_own(bench):
    bench.evaluate()
    scores = bench.snapshot.scores
    assert bench.effects.former == ("", {})
    label = bench.toggle("conv", "weight", on=False).label
    assert bench.effects.former == (label, scores)
    bench.toggle("head", "weight", on=False)
    assert bench.effects.former == (label, scores)  # the plan between has none
    assert "PTQ\u00a0before" in bench.view.summary.value
    bench.evaluate()
    assert bench.effects.former == ("", {})
    assert "before" not in bench.view.summary.value
    bench.undo()
    assert bench.effects.former == (label, scores)  # not those of the plan after it
    bench.undo()
    assert bench.effects.former == ("", {})
