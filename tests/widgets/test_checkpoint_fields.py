"""The fields for checkpoints: a training killed with the kernel goes on after `load`, and the panes say from where."""

import keras
import numpy as np
import pytest
from small_benches import tiny_data, tiny_model

import qdq_workbench as qdq
from qdq_widgets import Workbench
from qdq_widgets.panes.calibration import CalibrationPane
from qdq_widgets.panes.corrections import CorrectionsPane
from qdq_widgets.panes.sensitivity import SensitivityPane
from qdq_widgets.panes.training import TrainingPane, kept_training


def opened(bench, kind):
    bench.view.work.open(kind)
    return bench.view.pane(kind)


def clicked(pane, button):
    """Click, wait for the end of the work, and return the error that the pane shows."""
    button.click()
    assert pane.bench.jobs.wait(120)
    pane.refresh()
    return pane.errors.message


class KilledError(Exception):
    """Ends a training in the middle."""


@pytest.fixture(scope="module")
def killed(tmp_path_factory):
    """The folder of a bench that was saved with its fields filled, and whose training was then killed."""
    folder = tmp_path_factory.mktemp("killed")
    keras.utils.set_random_seed(0)
    bench = Workbench(tiny_model(), train_data=tiny_data(), validation_data=tiny_data(32), target="onnxruntime")
    bench.calibrate()
    pane = opened(bench, TrainingPane)
    assert (pane.checkpoint.field.value, pane.checkpoint.note.value) == ("", "")
    pane.epochs.value, pane.rate.value, pane.batch.value = 3, "1e-3", 16
    pane.checkpoint.field.value = str(folder / "training.npz")
    assert pane.checkpoint.note.value == ""
    bench.save(folder / "bench")
    save = qdq.files.TrainingCheckpoint.save

    def save_and_end(self, model, notes):
        save(self, model, notes)
        if notes["epochs"] == 2:
            raise KilledError

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(qdq.files.TrainingCheckpoint, "save", save_and_end)
        clicked(pane, pane.run)
    return folder / "bench"


def test_a_killed_training_goes_on_by_two_clicks(killed):
    bench = Workbench.load(killed, train_data=tiny_data(), validation_data=tiny_data(32))
    pane = opened(bench, TrainingPane)
    assert (pane.epochs.value, pane.rate.value, pane.batch.value) == (3, "1e-3", 16)
    assert "training.npz holds 2 of 3 epochs: Fine-tune goes on after them" in pane.checkpoint.note.value
    assert clicked(pane, pane.run) == ""
    assert bench.stage == "fine-tuned"
    assert bench.curves.runs[-1].epochs == (0.0, 1.0, 2.0, 3.0)
    assert "holds all 3 epochs of a training" in pane.checkpoint.note.value
    pane.epochs.value = 4
    assert "holds 3 of 4 epochs" in pane.checkpoint.note.value


def test_the_pane_shows_that_the_file_is_of_another_training(killed):
    bench = Workbench.load(killed, train_data=tiny_data(), validation_data=tiny_data(32))
    pane = opened(bench, TrainingPane)
    pane.rate.value = "1e-2"
    assert "of another training" in clicked(pane, pane.run)
    pane.checkpoint.field.value = " "
    assert pane.checkpoint.note.value == ""
    assert clicked(pane, pane.run) == ""


def test_a_file_that_is_no_checkpoint_is_named(tmp_path):
    path = tmp_path / "other.npz"
    np.savez(path, head=np.array("{}"))
    assert kept_training(path, 3).startswith("other.npz is no checkpoint of a training")
    with pytest.raises(qdq.errors.CheckpointError, match="no checkpoint of a training"):
        qdq.files.TrainingCheckpoint.notes_of(path)
    path.write_bytes(b"PK")
    assert kept_training(path, 3).startswith("other.npz is no checkpoint of a training")
    assert qdq.files.TrainingCheckpoint.notes_of(tmp_path / "none.npz") is None
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    qdq.files.TrainingCheckpoint(path, "mine").save(model, {"history": {}})
    assert kept_training(path, 3).startswith("other.npz was not written by a bench")


def test_the_other_panes_give_their_files_and_remember_them(tmp_path):
    bench = Workbench(tiny_model(), train_data=tiny_data(), validation_data=tiny_data(32), target="onnxruntime")
    calibration = opened(bench, CalibrationPane)
    calibration.checkpoint.field.value = str(tmp_path / "ranges.json")
    assert clicked(calibration, calibration.run) == ""
    assert "ranges.json is there" in calibration.checkpoint.note.value
    swept = opened(bench, SensitivityPane)
    swept.checkpoint.field.value = str(tmp_path / "swept.json")
    assert clicked(swept, swept.run) == ""
    swept.search.checkpoint.field.value, swept.search.floor.value = str(tmp_path / "found.json"), 0.0
    assert clicked(swept, swept.search.run) == ""
    corrections = opened(bench, CorrectionsPane)
    corrections.checkpoint.field.value = str(tmp_path / "rounding.npz")
    corrections.fields["learn_rounding"]["steps"].value = 2
    assert clicked(corrections, corrections.run) == ""
    assert {path.name for path in tmp_path.iterdir()} >= {"ranges.json", "swept.json", "found.json", "rounding.npz"}
    corrections.picker.value = "clip_weights"
    assert corrections.checkpoint.note.layout.display == "none"

    bench.save(tmp_path / "bench")
    restored = Workbench.load(tmp_path / "bench")
    fields = (
        opened(restored, CalibrationPane).checkpoint,
        opened(restored, SensitivityPane).checkpoint,
        opened(restored, SensitivityPane).search.checkpoint,
        opened(restored, CorrectionsPane).checkpoint,
    )
    assert [field.field.value.rpartition("/")[2] for field in fields] == [
        "ranges.json",
        "swept.json",
        "found.json",
        "rounding.npz",
    ]
    assert all("is there" in field.note.value for field in fields)
