"""Corrected models: their samples, what counts as a change, checkpoints of stopped runs, benches like another one."""

import dataclasses
import pathlib
from types import SimpleNamespace

import numpy as np
import pytest
from mock_graphs import chain

import qdq_workbench as qdq
from qdq_widgets.background import Job
from qdq_widgets.corrected_models import CorrectedModels, _changes, bench_like, elsewhere
from qdq_widgets.corrections import BY_NAME, Applied
from qdq_widgets.data import BenchData
from qdq_widgets.errors import BenchError, BenchStoppedError
from qdq_widgets.snapshots import CALIBRATED, CORRECTED
from qdq_widgets.state import BenchState

GRAPH = chain(("Conv2D", "conv"), ("ReLU", "relu"), ("Conv2D", "last"))
OTHER = chain(("Conv2D", "conv"), ("Conv2D", "last"))
STATE = BenchState(qdq.QuantizationSpec())
PLAN = qdq.plan_placement(GRAPH)
IMAGES = np.zeros((6, 2), "float32")


class QuantizedModel:
    """Weights that a correction can change."""

    def __init__(self, *values):
        self.values = [np.array(value, "float32") for value in values]

    def get_weights(self):
        return [value.copy() for value in self.values]


def makers(data=IMAGES, stage=CALIBRATED, applied=(), model=GRAPH):
    """Return the corrected models of a bench, whose quantized models say what they were made by."""
    store = SimpleNamespace(
        float_model=model,
        calibration=["ranges"],
        stage=lambda _: stage,
        corrections=lambda _: applied,
        build=lambda _: QuantizedModel(1.0, 2.0),
        copy=lambda _: QuantizedModel(3.0, 4.0),
    )
    return CorrectedModels(SimpleNamespace(models=store, data=BenchData(calibration=data)))


def make(made, name, given=None, job=None, checkpoint=None):
    correction = BY_NAME[name]
    job = job or Job(name, lambda _: None)
    return made.make(correction, correction.checked(given or {}), STATE, PLAN, job, checkpoint)


# ---------------------------------------------------------------------- samples


@pytest.mark.parametrize("samples", [0, -1, True, 2.5, "3", None])
def test_the_number_of_samples_is_whole_and_positive(samples):
    with pytest.raises(BenchError, match=f"samples must be a whole number of 1 or more. Received: samples={samples!r}"):
        makers()._samples({"samples": samples})


def test_the_first_samples_are_read_and_no_more_than_there_are():
    for count, found in ((1, 1), (np.int64(4), 4), (100, 6)):
        assert len(makers()._samples({"samples": count})) == found
    with pytest.raises(BenchError, match="samples=0"):
        makers()._samples({})


def test_a_generator_would_be_used_up():
    once = iter([IMAGES])
    with pytest.raises(BenchError, match=r"read the data several times.*Received: list_iterator"):
        makers(once)._samples({"samples": 4})
    assert next(once) is IMAGES


@pytest.mark.parametrize(("data", "kind"), [(IMAGES, "array"), ([IMAGES, IMAGES], "list"), ({"x": IMAGES}, "dict")])
def test_the_kind_of_the_data_is_that_of_the_calibration(data, kind):
    assert makers(data).kind_of_data() == kind


# ---------------------------------------------------------------------- what has changed


def test_changed_variables_are_counted_and_added_ones_too():
    correction, ones = BY_NAME["clip_weights"], [np.ones(2), np.ones(3)]
    assert _changes(ones, [np.ones(2), np.zeros(3)], correction) == "1 of 2 variables have changed."
    assert _changes(ones, [*ones, np.zeros(1), np.zeros(1)], correction) == "2 biases were added."
    with pytest.raises(BenchError, match=r"Weight clipping changed nothing.*no channel, weight or statistic"):
        _changes(ones, [np.ones(2), np.ones(3)], correction)
    with pytest.raises(BenchError, match=r"stays as it is: nothing to round\. Received: 'clip"):
        _changes(ones, ones, correction, "nothing to round")


def test_a_correction_of_the_float_model_must_leave_the_plan():
    made = makers()
    assert made._replanned(GRAPH, BY_NAME["clip_weights"], STATE, PLAN) == PLAN
    with pytest.raises(BenchError, match=r"new_bench\('clip_weights'\) Received: a model whose layers it lays out"):
        made._replanned(OTHER, BY_NAME["clip_weights"], STATE, PLAN)
    spec = qdq.QuantizationSpec()
    spec.add("relu", quantize_weight=False)  # which the other model has not
    with pytest.raises(BenchError, match="lays out anew"):
        made._replanned(OTHER, BY_NAME["clip_weights"], STATE.replace(spec=spec), PLAN)


def test_the_reference_of_learned_rounding_is_the_model_before_clipping(monkeypatch):
    def applied(*names):
        return tuple(Applied(name, {"samples": 4}, {}) for name in names)

    def equalized(model, *, samples=None):
        return dataclasses.replace(model, name="equalized")

    monkeypatch.setattr(qdq.correction, "equalize_scales", equalized)
    assert makers(applied=applied("equalize_scales", "estimate_statistics"))._reference(STATE, PLAN) is None
    assert makers(applied=applied("clip_weights"))._reference(STATE, PLAN) is GRAPH
    clipped = makers(applied=applied("equalize_scales", "clip_weights", "correct_biases"))
    assert clipped._reference(STATE, PLAN).name == "equalized"


def test_a_float_correction_gets_the_plan_and_the_samples_that_it_reads(monkeypatch):
    seen = {}
    for name, settings in (("equalize_scales", {}), ("clip_weights", {}), ("correct_biases", {"samples": 2})):
        monkeypatch.setattr(
            qdq.correction, name, lambda *given, _name=name, **named: seen.update({_name: (given, named)})
        )
        makers().corrected_float(name, settings, PLAN)
    assert seen["equalize_scales"] == ((GRAPH,), {"method": "ranges"})
    assert seen["clip_weights"] == ((GRAPH,), {"method": "mse", "plan": PLAN})
    (model, samples), named = seen["correct_biases"]
    assert (model, len(samples), named) == (GRAPH, 2, {"plan": PLAN})


# ---------------------------------------------------------------------- the quantized model


class Learning:
    """Stands for `learn_rounding`: writes its checkpoint, and changes the weights of complete runs."""

    def __init__(self, *, complete=True, changed=1, refuses=False):
        self.complete, self.changed, self.refuses = complete, changed, refuses
        self.asked, self.found = [], []

    def __call__(self, q_model, samples, **how):
        self.asked.append(how)
        self.found.append(how["checkpoint"].exists())
        if self.refuses and how["checkpoint"].exists():
            raise qdq.errors.CheckpointError("of other samples")
        how["checkpoint"].write_text("units")
        how["progress"](1, 4, "block")
        if self.changed:
            q_model.values[0] = q_model.values[0] + 1
        return SimpleNamespace(
            complete=self.complete, changed=self.changed, units=["one", "two"], summary=lambda: "2 units"
        )


@pytest.mark.parametrize(("stage", "first"), [(CALIBRATED, 1.0), (CORRECTED, 3.0)])
def test_a_correction_goes_on_from_the_weights_that_the_plan_has(monkeypatch, stage, first):
    monkeypatch.setattr(qdq, "learn_rounding", Learning())
    job = Job("rounding", lambda _: None)
    model, report = make(makers(stage=stage), "learn_rounding", {"samples": 2}, job)
    assert (model.values[0], report) == (first + 1, "2 units")
    assert (job.fraction, job.text) == (0.25, "1 of 4: block")


def test_a_stopped_run_keeps_its_units_for_the_same_call_alone(monkeypatch):
    made = makers()
    monkeypatch.setattr(qdq, "learn_rounding", learning := Learning(complete=False))
    with pytest.raises(BenchStoppedError, match=r"Stopped: Learned rounding. The weights are as before. 2 units are"):
        make(made, "learn_rounding")
    assert "with the same settings goes on behind them" in made.unfinished
    path = learning.asked[0]["checkpoint"]
    assert path.exists()

    learning.complete = True
    make(made, "learn_rounding", {"steps": 3})  # with other settings it begins anew
    assert learning.found == [False, False]
    assert made.unfinished == ""
    assert not path.exists()


@pytest.mark.parametrize("anew", [False, True])
def test_units_are_taken_again_unless_the_ranges_are_found_anew(monkeypatch, anew):
    made = makers()
    monkeypatch.setattr(qdq, "learn_rounding", learning := Learning(complete=False))
    with pytest.raises(BenchStoppedError):
        make(made, "learn_rounding")
    learning.complete = True
    if anew:
        made._work.models.calibration = ["ranges"]  # equal ones, of other data
    make(made, "learn_rounding")
    assert learning.found == [False, not anew]


def test_a_checkpoint_that_no_longer_fits_is_dropped_unless_it_is_the_users(monkeypatch, tmp_path):
    made = makers()
    monkeypatch.setattr(qdq, "learn_rounding", learning := Learning(complete=False))
    with pytest.raises(BenchStoppedError):
        make(made, "learn_rounding")
    learning.complete, learning.refuses = True, True
    assert make(made, "learn_rounding")[1] == "2 units"
    assert len(learning.asked) == 3

    own = tmp_path / "own.npz"
    own.write_text("units")
    with pytest.raises(qdq.errors.CheckpointError):
        make(made, "learn_rounding", checkpoint=str(own))
    assert own.read_text() == "units"
    learning.refuses = False
    make(made, "learn_rounding", checkpoint=str(own))
    assert isinstance(learning.asked[-1]["checkpoint"], pathlib.Path)
    assert own.exists()  # a user's own file stays


def test_rounding_that_changed_no_weight_is_an_error_unless_a_bias_has_changed(monkeypatch):
    monkeypatch.setattr(qdq, "learn_rounding", learning := Learning(changed=0))
    with pytest.raises(BenchError, match="Learned rounding changed nothing, so the model stays as it is: 2 units"):
        make(makers(), "learn_rounding")

    def with_bias(q_model, *given, **how):
        q_model.values[1] = q_model.values[1] + 1
        return learning(q_model, *given, **how)

    monkeypatch.setattr(qdq, "learn_rounding", with_bias)
    assert make(makers(), "learn_rounding")[1] == "2 units"


def test_new_statistics_say_how_many_and_end_at_a_stop(monkeypatch):
    changes = [1.0, 0.0]

    def statistics(q_model, samples, *, verbose, progress):
        for number in range(3):
            progress(number, 0, "norm")
        q_model.values[1] = q_model.values[1] + changes.pop(0)
        return 3

    monkeypatch.setattr(qdq.correction, "estimate_statistics", statistics)
    job = Job("statistics", lambda _: None)
    _, report = make(makers(), "estimate_statistics", job=job)
    assert report == "The statistics of 3 batch normalizations were taken anew."
    assert job.fraction is None
    with pytest.raises(BenchError, match="Statistics of normalizations changed nothing"):
        make(makers(), "estimate_statistics", job=job)
    job.stop()
    with pytest.raises(BenchStoppedError):
        make(makers(), "estimate_statistics", job=job)


# ---------------------------------------------------------------------- benches of other models


class Made(SimpleNamespace):
    """A bench as `bench_like` makes it."""

    def __init__(self, model, **arguments):
        if arguments.get("spec") == "misfit":
            raise qdq.SpecError("no such layer")
        super().__init__(model=model, arguments=arguments, state=SimpleNamespace(mode="full"), modes=[])

    def set_mode(self, mode):
        self.modes.append(mode)


def workshop(*, knows_loss=True):
    setup = SimpleNamespace(knows_loss=knows_loss, loss_and_metrics=lambda: ("mse", ["mae"]), optimizer="sgd")
    return SimpleNamespace(data=BenchData("train", "validation", "calibration"), setup=setup)


DATA = {"train_data": "train", "validation_data": "validation", "calibration_data": "calibration", "optimizer": "sgd"}


def test_a_bench_like_another_has_its_data_training_and_state():
    state = BenchState("spec", ("case",), "full", "litert")
    bench = bench_like(Made, "model", state, workshop())
    scored = {"loss": "mse", "metrics": ["mae"], "target": "litert"}
    assert bench.arguments == {**DATA, **scored, "spec": "spec", "cases": ("case",)}
    assert bench.modes == []
    unscored = bench_like(Made, "model", state, workshop(knows_loss=False))
    assert (unscored.arguments["loss"], unscored.arguments["metrics"]) == (None, None)


def test_a_spec_that_does_not_fit_is_left_out_and_the_mode_stays():
    bench = bench_like(Made, "model", BenchState("misfit", (), "partial", "litert"), workshop())
    assert {"spec", "cases"}.isdisjoint(bench.arguments)
    assert bench.arguments["target"] == "litert"
    assert bench.modes == ["partial"]
    assert elsewhere("fold_batch_norm").endswith("wb.corrections.new_bench('fold_batch_norm')")
