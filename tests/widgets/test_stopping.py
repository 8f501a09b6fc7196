"""Work that is stopped ends without an error, and data that do not fit are named."""

import numpy as np
import pytest
from small_benches import stopped_when, tiny_data, tiny_model

from qdq_widgets import Workbench
from qdq_widgets.errors import BenchError, BenchStoppedError
from qdq_widgets.panes.calibration import CalibrationPane
from qdq_widgets.panes.sensitivity import SensitivityPane
from qdq_widgets.panes.training import TrainingPane
from qdq_widgets.panes.variants import VariantsPane


@pytest.fixture(scope="module")
def ready():
    """A calibrated bench that nobody scored yet."""
    bench = Workbench(tiny_model(), train_data=tiny_data(), target="onnxruntime")
    bench.calibrate()
    return Workbench(bench.model, train_data=tiny_data(), validation_data=tiny_data(32), target="onnxruntime"), bench


@pytest.fixture
def bench(ready):
    made, calibrated = ready
    made.continue_from(calibrated)
    return made


def stop_at(bench, word):
    """Stop the running work as soon as its text says a word."""
    return stopped_when(bench, lambda job: word in f"{job.label} {job.text}")


def finish(bench):
    assert bench.jobs.wait(120)


@pytest.mark.parametrize(
    ("kind", "button", "word"),
    [
        (CalibrationPane, "run", "scoring"),
        (TrainingPane, "score", "scoring"),
        (TrainingPane, "run", "scoring"),
        (VariantsPane, "measure", "measuring"),
        (SensitivityPane, "sqnr", "SQNR"),
    ],
)
def test_stop_while_something_is_scored_is_no_error(bench, kind, button, word):
    bench.keep_variant("this")
    pane = bench.view.pane(kind)
    with stop_at(bench, word):
        getattr(pane, button).click()
        finish(bench)
    assert pane.errors.message == ""
    assert bench.view.status.value.startswith('<div class="qdq-muted">Stopped: ')
    assert (bench.stage, bench.curves.ptq, bench.curves.runs) == ("calibrated", None, ())


def test_in_code_a_stop_leaves_what_there_was(bench):
    with stop_at(bench, "scoring"):
        assert bench.evaluate().ptq is None
        assert bench.fine_tune(1).state == "stopped"
        assert bench.calibrate(steps=1).batches == 1
    with pytest.raises(BenchStoppedError), bench.jobs.run("something") as job:
        job.stop()
        job.raise_if_stopped()


def reports_of(bench, work):
    """Return the texts and fractions that a job reports."""
    seen = []

    def listen(event):
        job = bench.jobs.current
        if event == "job" and job is not None and job.text:
            seen.append((job.text, job.fraction))

    forget = bench.subscribe(listen)
    try:
        work()
    finally:
        forget()
    return list(dict.fromkeys(seen))


def test_scoring_tells_its_batches_and_how_far_it_is(ready, monkeypatch):
    monkeypatch.setattr("qdq_widgets.fitting._REDRAW_SECONDS", 0.0)
    bench = Workbench(ready[0].model, train_data=tiny_data(), validation_data=tiny_data(32), target="onnxruntime")
    bench.continue_from(ready[1])
    assert reports_of(bench, lambda: bench.evaluate(batch_size=16)) == [
        ("building the quantized model", None),
        ("scoring the float model", 0.0),
        ("scoring the float model, batch 1 of 2", 0.25),
        ("scoring the float model, batch 2 of 2", 0.5),
        ("scoring the quantized model", 0.5),
        ("scoring the quantized model, batch 1 of 2", 0.75),
        ("scoring the quantized model, batch 2 of 2", 1.0),
    ]
    for name, layer in (("one", "conv"), ("two", "head")):
        bench.toggle(layer, "weight")
        bench.keep_variant(name)
    seen = reports_of(bench, lambda: bench.measure_variants(batch_size=16))
    assert ("one: scoring, batch 1 of 2", 0.125) in seen
    assert ("two: scoring, batch 2 of 2", 0.75) in seen
    fractions = [fraction for _, fraction in seen]
    assert None not in fractions
    assert fractions == sorted(fractions)
    seen = reports_of(bench, lambda: bench.fine_tune(2, batch_size=16))
    assert ("scoring epoch 1, batch 2 of 2", 0.5) in seen


def test_stop_within_a_score_ends_it_at_once(ready):
    def batches():
        for number in range(1000):
            if number == 2:
                bench.jobs.stop()
            taken.append(number)
            yield tuple(part[:8] for part in tiny_data())

    import tensorflow as tf

    taken = []
    signature = (tf.TensorSpec((8, 6, 6, 2)), tf.TensorSpec((8,), tf.int64))
    data = tf.data.Dataset.from_generator(batches, output_signature=signature)
    bench = Workbench(ready[0].model, validation_data=data, target="onnxruntime")
    bench.continue_from(ready[1])
    assert bench.evaluate().ptq is None
    assert len(taken) < 100


@pytest.mark.parametrize("work", ["evaluate", "fine_tune", "diagnose"])
def test_stop_while_the_model_is_built_ends_the_work(bench, work):
    bench.keep_variant("this")
    with stop_at(bench, "building"):
        try:
            getattr(bench, work)()
        except BenchStoppedError:
            assert work == "diagnose"
    assert bench.jobs.last.text == "stopping after this step ..."
    assert (bench.stage, bench.curves.ptq, bench.curves.runs, bench.diagnosis) == ("calibrated", None, (), None)


def test_a_diagnosis_tells_its_steps_and_stops_before_the_first_site(bench):
    for word in ("the outputs of the float model", "all weights"):
        with stop_at(bench, word), pytest.raises(BenchStoppedError):
            bench.diagnose(samples=16)
    with stop_at(bench, "conv"):
        assert not bench.diagnose(samples=16).complete


IMAGES, LABELS = tiny_data(8)
MISFITS = {
    "wrong size": ((IMAGES[:, :5, :5, :1], LABELS), r"\(\(8, 5, 5, 1\) float32, \(8,\) int64\)"),
    "too few labels": ((IMAGES, LABELS[:5]), r"\(5,\) int64"),
    "labels of another shape": ((IMAGES, np.zeros((8, 4, 4, 7))), r"\(8, 4, 4, 7\) float64"),
    "a class that there is not": ((IMAGES, LABELS + 5), r"gives \(\?, 3\)"),
}


@pytest.mark.parametrize("kind", MISFITS)
def test_data_that_do_not_fit_are_named(ready, kind):
    data, said = MISFITS[kind]
    bench = Workbench(ready[0].model, train_data=data, target="onnxruntime")
    bench.continue_from(ready[1])
    pane = bench.view.pane(TrainingPane)
    pane.run.click()
    finish(bench)
    assert pane.errors.message.startswith("train_data and the model do not fit: ")
    assert "please report" not in pane.errors._text.value
    assert "Traceback" not in pane.errors.message
    with pytest.raises(BenchError, match=said):
        bench.fine_tune(1)
    assert [run.state for run in bench.curves.runs] in (["failed"] * len(bench.curves.runs), [])
    scored = Workbench(ready[0].model, validation_data=data, target="onnxruntime")
    scored.continue_from(ready[1])
    with pytest.raises(BenchError, match="validation_data and the model do not fit"):
        scored.evaluate()
