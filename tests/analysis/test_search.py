"""The search finds the planted layer, keeps what it promises, and says when the floor cannot be met."""

import json

import keras
import numpy as np
import pytest
from keras import layers

import qdq_workbench as qdq
from qdq_workbench.analysis import search_judge
from qdq_workbench.errors import CheckpointError, DataError

QUIET = {"verbose": False}


def two_scales():
    """Inputs in 0..1 decide the class; an input of thousands next to them drowns their grid, and `mix` ignores it."""
    keras.utils.set_random_seed(7)
    small, large = keras.Input((6,), name="small"), keras.Input((2,), name="large")
    joined = layers.Concatenate(name="join")([small, large])
    mix = layers.Dense(8, activation="relu", name="mix")
    hidden = layers.Dense(8, activation="relu", name="hidden")(mix(joined))
    model = keras.Model([small, large], layers.Dense(4, name="head")(hidden), name="two_scales")
    kernel, bias = mix.get_weights()
    kernel[6:] = 0.0
    mix.set_weights([kernel, bias])
    return model


@pytest.fixture(scope="module")
def problem():
    """A model, and data whose labels are its own predictions."""
    model = two_scales()
    generator = np.random.default_rng(0)
    inputs = [generator.random((200, 6), dtype="float32"), 1000 * generator.random((200, 2), dtype="float32")]
    labels = np.argmax(model.predict(inputs, verbose=0), axis=-1)
    return model, inputs, labels


@pytest.fixture(scope="module")
def found(problem):
    """What a search of the model for a floor that only the planted layer misses finds, and its progress."""
    model, inputs, labels = problem
    seen = []
    result = qdq.search(model, (inputs, labels), accuracy_floor=0.95, progress=lambda *step: seen.append(step))
    return result, seen


@pytest.fixture(scope="module")
def ranking(problem):
    model, inputs, _ = problem
    return qdq.sensitivity(model, inputs, **QUIET)


def accuracy_of(model, inputs, labels):
    return float(np.mean(np.argmax(model.predict(inputs, verbose=0), axis=-1) == labels))


def test_only_the_planted_layer_stays_in_float(problem, found):
    _, inputs, labels = problem

    result, _ = found

    assert (result.met, result.float_layers, result.complete) == (True, ["mix"], True)
    assert result.quantized_accuracy < 0.95 <= result.accuracy
    assert result.float_accuracy == 1.0
    assert result.accuracy == accuracy_of(result.q_model, inputs, labels)
    assert result.q_model.plan == result.plan
    assert result.plan.for_layer("mix").author == "search"


def test_the_spec_says_the_same_as_the_plan(problem, ranking):
    model, inputs, labels = problem
    spec = qdq.QuantizationSpec()
    spec.add("head", quantize_input=False)
    plan = qdq.plan_placement(model, quantization_spec=spec)
    how = {"plan": plan, "spec": spec, "ranking": ranking, **QUIET}

    result = qdq.search(model, (inputs, labels), accuracy_floor=0.95, **how)

    assert [entry.name for entry in result.spec.layers] == ["head", "mix"]
    again = qdq.plan_placement(model, quantization_spec=result.spec)
    assert {p.key for p in again.placements} == {p.key for p in result.plan.placements}
    assert len(spec.layers) == 1


def test_nothing_is_raised_where_the_floor_is_reached_anyway(problem, ranking):
    model, inputs, labels = problem

    result = qdq.search(model, (inputs, labels), accuracy_floor=0.0, ranking=ranking, **QUIET)

    assert (result.met, result.float_layers, len(result.history)) == (True, [], 1)
    assert "no layers" in result.reason


def test_the_best_is_kept_and_the_reason_told_when_the_floor_cannot_be_met(problem, ranking):
    model, inputs, labels = problem
    wrong = np.where(np.arange(len(labels)) % 4 == 0, (labels + 1) % 4, labels)

    result = qdq.search(model, (inputs, wrong), accuracy_floor=0.95, ranking=ranking, **QUIET)

    assert not result.met
    assert "float model itself" in result.reason
    assert result.search_accuracy == max(step.accuracy for step in result.history)
    halves = (result.search_accuracy + result.accuracy) / 2
    assert halves == pytest.approx(accuracy_of(result.q_model, inputs, wrong))


def test_four_bits_are_raised_to_eight_before_float(problem):
    model, inputs, labels = problem
    spec = qdq.QuantizationSpec()
    spec.add("join", quantize_input=False, quantize_weight=False)
    four = qdq.LayerQuantizeConfig(weight={"num_bits": 2})
    spec.add(["mix", "hidden", "head"], quantize_config=four, quantize_input=False)
    plan = qdq.plan_placement(model, quantization_spec=spec)

    result = qdq.search(model, (inputs, labels), accuracy_floor=0.97, plan=plan, spec=spec, **QUIET)

    assert result.met
    assert result.quantized_accuracy < 0.97
    assert 8 in result.best.levels.values()
    raised = [layer for layer, level in result.best.levels.items() if level == 8]
    bits = {p.layer: p.quantizer.num_bits for p in result.plan.placements if p.site == "weight"}
    assert all(bits[layer] == 8 for layer in raised)
    again = qdq.plan_placement(model, quantization_spec=result.spec)
    assert {p.layer: p.quantizer for p in again.placements} == {p.layer: p.quantizer for p in result.plan.placements}


def test_a_calibrated_model_is_searched_as_it_is(problem):
    model, inputs, labels = problem
    q_model = qdq.quantize_model(model, target="onnxruntime")
    qdq.calibrate(q_model, [inputs], verbose=False)
    before = [keras.ops.convert_to_numpy(variable) for variable in q_model.variables]

    result = qdq.search(q_model, (inputs, labels), accuracy_floor=0.95, **QUIET)

    assert (result.met, result.plan.target) == (True, "onnxruntime")
    assert result.q_model is not q_model
    assert result.q_model.uncalibrated_tensors() == []
    after = [keras.ops.convert_to_numpy(variable) for variable in q_model.variables]
    assert all(np.array_equal(a, b) for a, b in zip(before, after, strict=True))


def test_a_function_of_the_model_may_judge(problem, ranking):
    model, inputs, labels = problem
    judged = []

    def evaluate(candidate):
        judged.append(candidate)
        return accuracy_of(candidate, inputs, labels)

    how = {"evaluate": evaluate, "ranking": ranking, **QUIET}
    result = qdq.search(model, (inputs, labels), accuracy_floor=0.95, **how)

    assert result.float_layers == ["mix"]
    assert len(judged) == len(result.history) + 1  # and the float model


def test_a_search_goes_on_from_its_checkpoint(problem, found, tmp_path, monkeypatch):
    model, inputs, labels = problem
    path = tmp_path / "search.json"
    asked = []
    judge = search_judge.model_outputs
    judged = []
    monkeypatch.setattr(search_judge, "model_outputs", lambda *them: judged.append(them) or judge(*them))

    def stop():
        asked.append(None)
        return len(asked) > 3  # once per layer of the sweep

    arguments = {"accuracy_floor": 0.95, "checkpoint": path, **QUIET}
    first = qdq.search(model, (inputs, labels), stop=stop, **arguments)
    assert not first.complete
    assert path.with_suffix(".sensitivity.json").exists()
    assert len(first.history) == 1
    second = qdq.search(model, (inputs, labels), **arguments)
    judged.clear()
    third = qdq.search(model, (inputs, labels), **arguments)

    assert judged == []
    assert third.history == second.history
    assert (second.met, second.float_layers, second.complete) == (True, ["mix"], True)
    assert second.history == found[0].history
    with pytest.raises(CheckpointError, match="another search"):
        qdq.search(model, (inputs, (labels + 1) % 4), **arguments)


def test_progress_summary_and_file(found, tmp_path):
    result, seen = found

    result.save(tmp_path / "result.json")

    assert seen
    assert all(done <= total for done, total, _ in seen)
    assert "mix: float" in result.summary()
    data = json.loads((tmp_path / "result.json").read_text())
    assert data["met"] is True
    assert qdq.QuantizationSpec.from_dict(data["spec"]) == result.spec
    assert qdq.PlacementPlan.from_dict(data["plan"]) == result.plan
    assert len(data["history"]) == len(result.history)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"accuracy_floor": 90}, "share from 0 to 1"),
        ({"accuracy_floor": "high"}, "must be a number"),
        ({"accuracy_floor": 0.9, "metric": "mse"}, "more is better"),
        ({"accuracy_floor": 0.9, "bits": (1, 8)}, "integers from 2 to 16"),
        ({"accuracy_floor": 0.9, "bits": 8}, "integers from 2 to 16"),
    ],
    ids=str,
)
def test_mistakes_are_named(problem, arguments, says):
    model, inputs, labels = problem

    with pytest.raises(DataError, match=says):
        qdq.search(model, (inputs, labels), **arguments, **QUIET)


def test_a_function_that_returns_no_number_is_named(problem, ranking):
    model, inputs, labels = problem
    arguments = {"accuracy_floor": 0.5, "ranking": ranking, **QUIET}

    with pytest.raises(DataError, match=r"lambda.*must return one number.*dict"):
        qdq.search(model, (inputs, labels), evaluate=lambda model: {"accuracy": 1.0}, **arguments)


def test_a_checkpoint_knows_what_the_model_was_calibrated_on(problem, ranking, tmp_path):
    model, inputs, labels = problem
    arguments = {"accuracy_floor": 0.0, "ranking": ranking, "checkpoint": tmp_path / "search.json", **QUIET}
    qdq.search(model, (inputs, labels), calibration_data=[x[:64] for x in inputs], **arguments)

    with pytest.raises(CheckpointError, match="calibration data"):
        qdq.search(model, (inputs, labels), calibration_data=[x[64:] for x in inputs], **arguments)


def test_labels_are_needed(problem, ranking):
    model, inputs, _ = problem

    with pytest.raises(DataError, match="labels"):
        qdq.search(model, inputs, accuracy_floor=0.5, ranking=ranking, **QUIET)
