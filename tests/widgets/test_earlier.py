"""Work is not lost: the cell that makes the bench runs again, plans change after training, a folder is loaded."""

import pathlib
import time

import pytest
from small_benches import tiny_data, tiny_model

from qdq_widgets import Workbench
from qdq_widgets.background import Job
from qdq_widgets.curves import Scores
from qdq_widgets.earlier import same_objects
from qdq_widgets.errors import BenchError
from qdq_widgets.header import summary_texts
from qdq_widgets.models import KEPT_MODELS, ModelStore
from qdq_widgets.panes.export import ExportPane, verdict_html
from qdq_widgets.panes.files import FilesPane
from qdq_widgets.panes.training import TrainingPane


@pytest.fixture
def own():
    """A model of its own name, so that no other test's bench is its earlier one."""
    return tiny_model(name=f"own{time.monotonic_ns()}")


def worked(model, **data):
    bench = Workbench(model, **data)
    bench.toggle("conv", "weight")
    bench.keep_variant("float conv")
    return bench


def says_another_plan(bench):
    """Whether the training pane says so of the score of the calibrated model."""
    pane = bench.view.pane(TrainingPane)
    pane.refresh()
    assert "PTQ (calibrated)" in pane._table.value
    return "another plan" in pane._table.value


class TestEarlier:
    def test_a_second_bench_offers_the_work_of_the_first(self, own):
        first = worked(own)
        assert first.earlier is None
        second = Workbench(own, target="tensorrt")
        assert second.earlier is first
        assert second.view.notice.layout.display == ""
        assert "1 step, 1 variant" in second.view._notice_text.value
        second.view.go_on.click()
        assert second.view.errors.message == ""
        assert second.history.present.label == "toggle conv: weight"
        assert second.spec.layers == first.spec.layers
        assert [variant.name for variant in second.variants] == ["float conv"]
        assert second.view.notice.layout.display == "none"
        assert "Taken over: 1 step" in second.view.status.value
        second.undo()
        assert len(first.spec) == 1  # the other bench stays as it is

    def test_a_bench_without_work_is_passed_over(self, own):
        first = worked(own)
        idle = Workbench(own)
        third = Workbench(own)
        assert third.earlier is first
        third.view._dismiss()
        assert third.earlier is None
        assert third.view.notice.layout.display == "none"
        assert not idle.has_work

    def test_other_layers_are_another_model(self, own):
        first = worked(own)
        other = tiny_model(name=own.name, conv="another_name")
        assert Workbench(other).earlier is None
        with pytest.raises(BenchError, match="same layers"):
            Workbench(other).continue_from(first)

    def test_ranges_come_along_for_the_same_model_only(self, own):
        data = tiny_data()
        first = worked(own, calibration_data=data[0])
        first.calibrate()
        second = Workbench(own, train_data=data, validation_data=data)
        assert "a calibration" in second.continue_from(first)
        assert second.stage == "calibrated"
        assert second.q_model is first.q_model
        anew = Workbench(tiny_model(name=own.name), calibration_data=data[0])
        assert anew.continue_from(first) == "Taken over: 1 step, 1 variant; the model was built anew."
        assert anew.stage == "planned"
        assert anew.calibration is None

    def test_scores_come_along_for_the_same_arrays_in_new_containers(self, own):
        images, labels = tiny_data()
        first = Workbench(own, calibration_data=images, validation_data=(images, labels))
        first.calibrate()
        assert first.curves.ptq is not None
        second = Workbench(own, validation_data=(images, labels))
        assert second.continue_from(first) == "Taken over: 0 steps, a calibration."
        assert second.curves.ptq == first.curves.ptq
        other = Workbench(own, validation_data=(images, labels.copy()))
        assert "not the scores, which are of other data" in other.continue_from(first)
        assert other.curves.ptq is None

    def test_changed_weights_are_another_model(self, own):
        images = tiny_data()[0]
        first = worked(own, calibration_data=images)
        first.calibrate()
        own.get_layer("stem").bias.assign([1.0, 2.0, 3.0])
        second = Workbench(own, calibration_data=images)
        said = "Taken over: 1 step, 1 variant; the weights of the model have changed since."
        assert second.continue_from(first) == said
        assert second.stage == "planned"
        second.calibrate()
        third = Workbench(own)
        assert third.continue_from(second) == "Taken over: 1 step, 1 variant, a calibration."
        assert third.q_model is second.q_model

    def test_changed_weights_are_found_behind_a_folder_too(self, own, tmp_path):
        first = worked(own, calibration_data=tiny_data()[0])
        first.calibrate()
        first.save(tmp_path)
        second = Workbench(own)
        second.load(tmp_path)
        own.get_layer("stem").bias.assign([1.0, 2.0, 3.0])
        assert "weights of the model have changed" in Workbench(own).continue_from(second)

    def test_another_target_is_said(self, own):
        first = worked(own, target="tensorrt")
        second = Workbench(own, target="onnxruntime")
        assert "1 step, 1 variant, for tensorrt" in second.view._notice_text.value
        said = "Taken over: 1 step, 1 variant; the target is 'tensorrt' now, not 'onnxruntime'."
        assert second.continue_from(first) == said


@pytest.mark.parametrize(
    ("data", "other", "same"),
    [
        ([1, 2], [1, 2], True),
        ([1, 2], (1, 2), False),
        ((1,), (1, 2), False),
        ({"x": 1}, {"x": 1}, True),
        (([1], {"y": 2}), ([1], {"y": 2}), True),
        ({"x": 1}, {"y": 1}, False),
        (None, None, True),
        (None, (1, 2), False),
        (object(), object(), False),
    ],
)
def test_the_same_objects_are_the_same_data(data, other, same):
    assert same_objects(data, other) is same


class TestTrainedWeights:
    def test_a_plan_without_them_says_where_they_are(self, own):
        data = tiny_data()
        bench = Workbench(own, train_data=data, validation_data=data, target="onnxruntime")
        bench.calibrate()
        bench._work.models.put(bench.plan, bench.q_model, "fine-tuned")
        assert bench.stage_note == ""
        pane = bench.view.pane(TrainingPane)
        bench.toggle("conv", "weight")
        pane.refresh()
        assert "kept with it" in bench.stage_note
        assert bench.stage_note[:30] in pane._table.value
        assert "another plan" in pane._table.value
        assert bench.stage_note[:30] in bench.view.status.value
        bench.undo()
        pane.refresh()
        assert bench.stage == "fine-tuned"
        assert "another plan" not in pane._table.value

    def test_models_that_were_only_calibrated_make_room_first(self, monkeypatch):
        monkeypatch.setattr("qdq_widgets.models.plan_key", lambda plan: plan)
        store = ModelStore(None)
        store.put("trained", "weights", "fine-tuned")
        for number in range(2 * KEPT_MODELS):
            store.put(f"plan {number}", "ranges", "calibrated")
        assert store.stage("trained") == "fine-tuned"
        for number in range(KEPT_MODELS):
            store.put(f"trained {number}", "weights", "fine-tuned")
        store.put("newest", "ranges", "calibrated")
        assert store.stage("newest") == "calibrated"
        # A model that is rebuilt in seconds takes no trained one's place.
        assert [store.stage(f"trained {number}") for number in range(KEPT_MODELS)] == ["fine-tuned"] * KEPT_MODELS

    def test_a_dropped_model_takes_its_scores_along_and_is_named(self, own, monkeypatch):
        monkeypatch.setattr("qdq_widgets.models.KEPT_MODELS", 2)
        data = tiny_data()
        bench = Workbench(own, train_data=data, validation_data=data, target="onnxruntime")
        bench.calibrate()
        store, q_model = bench._work.models, bench.q_model
        for layer in ("stem", "conv", "head"):
            bench.toggle(layer, "weight")
            store.put(bench.plan, q_model, "fine-tuned")
            store.remember_scores(bench.plan, "fine-tuned", Scores(0.5, {"accuracy": 0.75}))
            store.remember_file(bench.plan, 100, pathlib.Path("model.onnx"))
        assert bench.stage == "fine-tuned"
        assert "The weights of one earlier plan were dropped" in bench.stage_note
        bench.undo()
        bench.undo()
        assert bench.stage == "calibrated"
        assert bench.stage_note.startswith("The fine-tuned weights of this plan were dropped")
        assert store.scores(bench.plan, "fine-tuned") is None
        assert store.file(bench.plan) is None
        assert not [text for text in summary_texts(bench) if text.startswith("QAT")]
        store.put(bench.plan, q_model, "fine-tuned")
        assert "of this plan" not in bench.stage_note


class TestFiles:
    def test_loading_asks_first(self, own, tmp_path):
        bench = worked(own)
        pane = bench.view.pane(FilesPane)
        pane.folder.value = str(tmp_path / "bench")
        pane.save.click()
        bench.toggle("stem", "weight")
        pane.refresh()
        pane.load.click()
        assert "Click Load again" in pane._done.value
        assert len(bench.history) == 3
        pane.load.click()
        assert len(bench.history) == 2

    def test_a_score_is_said_of_its_own_plan(self, own, tmp_path):
        data = tiny_data()
        bench = Workbench(own, train_data=data, validation_data=data, target="onnxruntime")
        bench.calibrate()
        assert not says_another_plan(Workbench.load(bench.save(tmp_path / "calibrated"), validation_data=data))
        bench.toggle("conv", "weight")
        loaded = Workbench.load(bench.save(tmp_path / "toggled"), validation_data=data)
        assert says_another_plan(loaded)
        loaded.undo()
        assert not says_another_plan(loaded)

    def test_names_of_files_are_the_models(self, own):
        bench = Workbench(own)
        assert bench.view.pane(ExportPane).path.value == f"{own.name}_int8.onnx"
        assert bench.view.pane(FilesPane).folder.value == f"{own.name}_bench"

    def test_a_replaced_file_is_said_to_be(self, own, tmp_path):
        bench = Workbench(own, calibration_data=tiny_data()[0])
        bench.calibrate()
        path = tmp_path / "net.onnx"
        assert "file of this name" not in verdict_html(bench.export(path, verify=False))
        assert "An earlier file of this name was replaced" in verdict_html(bench.export(path, verify=False))


def test_the_time_left_follows_the_pace(monkeypatch):
    now = [100.0]
    monkeypatch.setattr("qdq_widgets.background.time.monotonic", lambda: now[0])
    job = Job("work", lambda _: None)
    job.report(None, "preparing")
    assert job.seconds_left is None
    job.report(0.0, "")
    now[0] += 1
    job.report(0.1, "")
    assert job.seconds_left is None  # too early to tell
    now[0] += 9
    job.report(0.5, "")
    assert job.seconds_left == pytest.approx(10.0)
    job.report(0.0, "another part")
    assert job.seconds_left is None
