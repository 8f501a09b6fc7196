"""Runs and scores of a bench: every run keeps its name and its curve, and scores of another plan are named so."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from small_benches import tiny_data, tiny_model

import qdq_workbench as qdq
from qdq_widgets import Workbench
from qdq_widgets.curves import Curves, Scores, TrainingRun
from qdq_widgets.errors import BenchError
from qdq_widgets.panes.training import TrainingPane
from qdq_widgets.report import report_html

SCORES = Scores(0.5, {"accuracy": 0.75})


def run(name):
    return TrainingRun(name, "tensorrt", 7, ((0.5, 1.0), (1.0, 0.5)), (0.0, 1.0), (SCORES, SCORES), "done")


def test_a_numbered_name_replaces_no_run_and_a_rate_of_numpy_is_saved(tmp_path):
    bench = Workbench(tiny_model(), train_data=tiny_data())
    bench.fine_tune(1, name="QAT 2")
    bench.fine_tune(1, learning_rate=np.float32(0.25), batch_size=np.int64(16))
    with pytest.raises(BenchError, match="give a schedule with the optimizer"):
        bench.fine_tune(1, learning_rate=keras.optimizers.schedules.CosineDecay(0.1, 10))
    assert [run.name for run in bench.curves.runs] == ["QAT 2", "QAT 3"]
    assert Workbench.load(bench.save(tmp_path / "bench"), train_data=tiny_data()).snapshot.fits[0].learning_rate == 0.25


def test_the_curves_of_removed_runs_go(bench):
    bench.view.work.open(TrainingPane)
    pane = bench.view.pane(TrainingPane)

    def drawn(*names):
        bench._training.curves = Curves(SCORES, SCORES, tuple(map(run, names)))
        pane.refresh()
        return {line.legendgroup for line in pane.figure.data} - {"FP32", "PTQ"}

    assert drawn("a", "b") == {"a", "b"}
    grown = pane.figure
    assert drawn("a", "b", "c") == {"a", "b", "c"}
    assert pane.figure is grown
    assert drawn("b") == {"b"}
    assert pane.errors.message == ""
    bench._training.curves = Curves()
    pane.refresh()
    assert pane.figure is None


def test_the_report_names_the_score_of_another_plan(model):
    bench = Workbench(model, train_data=tiny_data(), validation_data=tiny_data(32))
    bench.calibrate()
    assert "another plan" not in report_html(bench)
    bench.toggle("conv", "weight")
    assert "<td>PTQ (calibrated)</td>" in report_html(bench)
    assert "another plan" in report_html(bench)


class KilledError(Exception):
    """Ends a training in the middle."""


def test_a_training_goes_on_from_its_checkpoint_in_a_new_bench(tmp_path, monkeypatch):
    def bench():
        keras.utils.set_random_seed(0)
        made = Workbench(tiny_model(), train_data=data, validation_data=tiny_data(32), target="onnxruntime")
        made.calibrate()
        return made

    # Without shuffling, so that both trainings see the same batches.
    data = tf.data.Dataset.from_tensor_slices(tiny_data()).batch(16)
    whole = bench()
    wanted = whole.fine_tune(4, learning_rate=0.01)
    killed, path = bench(), tmp_path / "training.npz"
    save = qdq.files.TrainingCheckpoint.save

    def save_and_end(self, model, notes):
        save(self, model, notes)
        if notes["epochs"] == 2:
            raise KilledError

    monkeypatch.setattr(qdq.files.TrainingCheckpoint, "save", save_and_end)
    with pytest.raises(KilledError):
        killed.fine_tune(4, learning_rate=0.01, checkpoint=path)
    assert killed.stage == "calibrated"
    monkeypatch.undo()
    resumed = bench()
    got = resumed.fine_tune(4, learning_rate=0.01, checkpoint=path)
    assert (got.epochs, got.state) == ((0.0, 1.0, 2.0, 3.0, 4.0), "done")
    assert [score.loss for score in got.scores] == pytest.approx([score.loss for score in wanted.scores], rel=1e-6)
    for one, other in zip(whole.q_model.weights, resumed.q_model.weights, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6)
    assert resumed.fine_tune(4, learning_rate=0.01, checkpoint=path).epochs == got.epochs  # nothing is left to train


def test_a_checkpoint_of_another_training_is_refused(tmp_path):
    bench = Workbench(tiny_model(), train_data=tiny_data(), target="onnxruntime")
    bench.calibrate()
    path = tmp_path / "training.npz"
    bench.fine_tune(1, checkpoint=path)
    before, kept = path.read_bytes(), [np.array(weight) for weight in bench.q_model.weights]
    with pytest.raises(qdq.errors.CheckpointError, match="of another training"):
        bench.fine_tune(1, learning_rate=0.5, checkpoint=path)
    bench.toggle("conv", "weight")
    with pytest.raises(qdq.errors.CheckpointError, match="of another training"):
        bench.fine_tune(1, checkpoint=path)
    bench.undo()
    assert path.read_bytes() == before
    for one, other in zip(kept, bench.q_model.weights, strict=True):
        np.testing.assert_array_equal(one, other)
