"""Search under budgets: equal to brute force where it says so, confirmed on held-out samples, and measured."""

import itertools
import json

import keras
import numpy as np
import pytest
from keras import layers

import qdq_workbench as qdq
from qdq_workbench.analysis import search_strategies
from qdq_workbench.analysis.levels import FLOAT, raise_layers
from qdq_workbench.analysis.metrics import get_metric
from qdq_workbench.analysis.samples import read_samples, split_samples
from qdq_workbench.analysis.search_goal import Goal
from qdq_workbench.analysis.search_result import SearchStep, cost_of, with_front
from qdq_workbench.analysis.search_switches import SwitchedTrials, switches_of
from qdq_workbench.conversion.engine.retarget import replan
from qdq_workbench.errors import DataError, SpecError

QUIET = {"verbose": False}
LAYERS = ["wide", "narrow", "head"]
FLOOR = 0.99  # five placements of 27 reach it, and only those are timed


@pytest.fixture(scope="module")
def problem():
    """A calibrated model of 3-bit weights, so that every layer costs accuracy, and data with its float answers."""
    keras.utils.set_random_seed(3)
    image = keras.Input((8,), name="image")
    value = layers.Dense(24, activation="relu", name="wide")(image)
    value = layers.Dense(6, activation="relu", name="narrow")(value)
    model = keras.Model(image, layers.Dense(5, name="head")(value), name="budgets")
    x = np.random.default_rng(0).normal(size=(400, 8)).astype("float32")
    y = np.argmax(model.predict(x, verbose=0), axis=-1)
    spec = qdq.QuantizationSpec()
    spec.add(LAYERS, quantize_config=qdq.LayerQuantizeConfig(weight={"num_bits": 3}))
    q_model = qdq.quantize_model(model, quantization_spec=spec, target="onnxruntime")
    qdq.calibrate(q_model, x, verbose=False)
    return q_model, x, y


@pytest.fixture(scope="module")
def brute_force(problem):
    """Every placement of the model: its levels, its accuracy, its bytes and its operations in float."""
    q_model, x, y = problem
    found = []
    for levels in itertools.product((None, 8, FLOAT), repeat=len(LAYERS)):
        raised = {layer: level for layer, level in zip(LAYERS, levels, strict=True) if level is not None}
        plan = raise_layers(q_model.plan, raised)
        answers = np.argmax(replan(q_model, plan)(x), axis=-1)
        found.append((raised, float(np.mean(answers == y)), *cost_of(plan)))
    return found


@pytest.fixture(scope="module")
def find(problem, tmp_path_factory):
    """Search on all samples, which confirm nothing then; what one search measured the next one knows."""
    q_model, x, y = problem
    path = tmp_path_factory.mktemp("search") / "known.json"

    def run(**arguments):
        return qdq.search(q_model, (x, y), confirmation_data=(x, y), checkpoint=path, **arguments, **QUIET)

    return run


@pytest.mark.parametrize("objective", ["bytes", "macs"])
@pytest.mark.parametrize("floor", [0.8, 0.93, 0.99])
def test_the_cheapest_of_all_is_found(find, brute_force, objective, floor):
    result = find(accuracy_floor=floor, objective=objective)

    costs = {"bytes": lambda each: each[2:4], "macs": lambda each: each[3:1:-1]}[objective]
    own = (None, None, result.best.weight_bytes, result.best.float_macs)
    assert costs(own) == min(costs(each) for each in brute_force if each[1] >= floor)
    assert (result.met, result.exact, result.complete) == (None, True, True)
    assert "no other placement is better" in result.reason


@pytest.mark.parametrize("budget", [200, 350, 800])
def test_the_most_accurate_within_a_budget_is_found(find, brute_force, budget):
    result = find(max_bytes=budget, objective="accuracy")

    within = [each for each in brute_force if each[2] <= budget]
    assert bool(within) == result.met == (budget > 200)
    if within:
        assert result.search_accuracy == pytest.approx(max(each[1] for each in within))
        assert result.best.weight_bytes <= budget
        assert result.exact
    else:
        assert "misses them least" in result.reason


def test_the_solver_comes_close_where_there_are_too_many(find, brute_force, monkeypatch):
    monkeypatch.setattr("qdq_workbench.analysis.search_run.MOST_EXACT", 1)
    solved = []
    milp = search_strategies.milp
    monkeypatch.setattr(search_strategies, "milp", lambda *a, **k: solved.append(1) or milp(*a, **k))

    cheap = find(accuracy_floor=0.93)
    sharp = find(max_bytes=350, objective="accuracy")

    assert len(solved) > 2
    assert (cheap.met, cheap.exact, sharp.met, sharp.exact) == (None, False, True, False)
    least = min(each[2] for each in brute_force if each[1] >= 0.93)
    most = max(each[1] for each in brute_force if each[2] <= 350)
    assert cheap.best.weight_bytes <= 1.15 * least
    assert sharp.search_accuracy >= most - 0.02


def test_more_accuracy_than_the_float_model_has_is_chance():
    goal = Goal("accuracy", None, None, None, ceiling=0.9)
    small, large = SearchStep({}, 0.91, 10, 0, meets=True), SearchStep({"a": 8}, 0.95, 20, 0, meets=True)

    assert goal.best([large, small]) is small
    assert goal.best([large, SearchStep({}, 0.89, 10, 0, meets=True)]) is large


def test_only_what_held_out_samples_confirm_is_met(problem):
    q_model, x, y = problem
    wrong = (y + 1) % 5

    result = qdq.search(
        q_model, (x[:200], y[:200]), accuracy_floor=0.8, confirmation_data=(x[200:], wrong[200:]), **QUIET
    )

    assert result.best.meets
    assert result.met is False
    assert result.confirmed_on == 200
    assert "held-out" in result.reason
    assert result.accuracy < 0.3
    assert result.search_accuracy >= 0.8


def test_confirmation_without_labels_is_refused_before_the_search(problem):
    q_model, x, y = problem

    with pytest.raises(DataError, match="no labels in confirmation_data"):
        qdq.search(q_model, (x, y), accuracy_floor=0.8, confirmation_data=x, **QUIET)


def test_half_of_the_samples_confirm_by_default(problem):
    q_model, x, y = problem

    result = qdq.search(q_model, (x, y), accuracy_floor=0.9, **QUIET)

    assert result.confirmed_on == 200
    _, held_out = split_samples(read_samples(q_model, (x, y)))
    answers = np.concatenate([np.argmax(result.q_model(batch[0]), axis=-1) for batch in held_out.batches])
    assert result.accuracy == pytest.approx(float(np.mean(answers == held_out.labels[0])))


def test_every_trial_can_be_taken_and_the_front_is_marked(problem, find, tmp_path):
    q_model, _, _ = problem
    result = find(accuracy_floor=0.95)

    front = [step for step in result.pareto if step.on_front]
    assert sorted(map(id, result.pareto)) == sorted(map(id, result.history))
    assert [step.weight_bytes for step in result.pareto] == sorted(step.weight_bytes for step in result.history)
    assert front
    for step in front:
        worse = [s for s in result.history if s.accuracy > step.accuracy and s.cost <= step.cost]
        assert worse == []
    other = next(step for step in result.pareto if step.levels != result.best.levels)
    assert cost_of(result.apply(other).plan) == other.cost
    assert result.apply() is result.q_model
    assert result.apply(SearchStep({}, 0.0, 0, 0, meets=False)).plan == q_model.plan
    with pytest.raises(SpecError, match="not of this search"):
        result.apply(SearchStep({"head": 5}, 0.0, 0, 0, meets=False))
    figure = result.plot()
    assert [trace.name for trace in figure.data] == ["tried", "Pareto front", "found"]
    assert len(figure.data[0].x) == len(result.history)
    result.save(tmp_path / "r.json")
    assert any(step["on_front"] for step in json.loads((tmp_path / "r.json").read_text())["history"])


def test_files_are_timed_and_the_fastest_is_returned(problem, tmp_path):
    q_model, x, y = problem
    arguments = {"objective": "ms", "accuracy_floor": FLOOR, "threads": 1, "checkpoint": tmp_path / "s.json", **QUIET}

    result = qdq.search(q_model, (x, y), **arguments)

    timed = [step for step in result.history if step.ms is not None]
    assert {frozenset(step.levels.items()) for step in timed} >= {frozenset((layer, FLOAT) for layer in LAYERS)}
    assert result.best.ms == min(step.ms for step in timed if step.meets)
    assert all(step.ms is None for step in result.history if step.accuracy < FLOOR)
    again = qdq.search(q_model, (x, y), **arguments)
    assert again.history == result.history  # times come from the checkpoint
    slow = qdq.search(q_model, (x, y), **{**arguments, "max_ms": 1e-6, "objective": "accuracy"})
    assert not slow.met
    assert "constraints" in slow.reason


def test_the_front_holds_what_nothing_beats():
    steps = [
        SearchStep({}, 0.5, 10, 0, meets=True),
        SearchStep({"a": 8}, 0.6, 20, 0, meets=True),
        SearchStep({"b": 8}, 0.55, 20, 0, meets=True),
        SearchStep({"c": 8}, 0.6, 30, 0, meets=True, ms=1.0),
    ]

    assert [step.on_front for step in with_front(steps)] == [True, True, False, True]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({}, "Nothing is asked for"),
        ({"objective": "speed"}, "'bytes', 'ms', 'macs', 'accuracy'"),
        ({"objective": "accuracy", "max_bytes": -1}, "max_bytes must be a number above 0"),
        ({"objective": "accuracy", "max_ms": "fast"}, "max_ms must be a number above 0"),
        ({"objective": "accuracy", "max_ms": float("nan")}, "max_ms must be a number above 0"),
    ],
)
def test_mistakes_are_named(problem, arguments, says):
    q_model, x, y = problem

    with pytest.raises(DataError, match=says):
        qdq.search(q_model, (x, y), **arguments, **QUIET)


def test_switches_measure_what_the_built_model_has(problem, brute_force):
    q_model, x, y = problem
    switched = SwitchedTrials(q_model, read_samples(q_model, (x, y)), get_metric("accuracy"))
    told = {}
    for levels, accuracy, *_ in brute_force:
        told[json.dumps(levels)] = switched.measure(raise_layers(q_model.plan, levels)), accuracy
    assert told.pop("{}")[0] is None  # the model is there
    assert len(told) == 26
    assert all(found == accuracy for found, accuracy in told.values()), told


def test_what_switches_cannot_say_is_built():
    image = keras.Input((6,), name="image")
    left, right = layers.Dense(4, name="left")(image), layers.Dense(4, name="right")(image)
    join = layers.Concatenate(name="join")([left, right])
    model = keras.Model(image, layers.Dense(2, name="head")(join), name="groups")
    four = qdq.LayerQuantizeConfig(weight={"num_bits": 4}, activation={"num_bits": 4})
    spec = qdq.QuantizationSpec()
    spec.add("join", quantize_input=True)
    spec.add("right", quantize_config=four)
    plan = qdq.plan_placement(model, target="onnxruntime", quantization_spec=spec)
    assert any(placement.scale_group for placement in plan.placements)

    everything = frozenset((placement.layer, placement.site) for placement in plan.placements)
    assert switches_of(plan, plan) == (everything, {})
    without_head = frozenset(switch for switch in everything if switch[0] != "head")
    assert switches_of(plan, raise_layers(plan, {"head": FLOAT})) == (without_head, {})
    assert switches_of(plan, raise_layers(plan, {"right": 8})) is None, "its activations have other bits as well"
    assert switches_of(plan, raise_layers(plan, {"join": FLOAT})) is None, "left and right no longer share a range"
