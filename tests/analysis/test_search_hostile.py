"""Estimates that lie, lucky times, samples that disagree: what is returned was measured, what is met was held out."""

import dataclasses
import itertools
import types

import keras
import numpy as np
import pytest
from keras import layers

import qdq_workbench as qdq
from qdq_workbench.analysis import search as searching
from qdq_workbench.analysis import search_run
from qdq_workbench.analysis.levels import FLOAT
from qdq_workbench.analysis.metrics import METRICS, mse
from qdq_workbench.analysis.samples import read_samples, split_samples
from qdq_workbench.analysis.search_goal import Goal
from qdq_workbench.analysis.search_known import Known
from qdq_workbench.analysis.search_moves import Decisions, Moves
from qdq_workbench.analysis.search_outcome import reason_of
from qdq_workbench.analysis.search_result import SearchStep, with_front
from qdq_workbench.analysis.search_starts import Start
from qdq_workbench.analysis.search_stopwatch import Stopwatch
from qdq_workbench.errors import DataError

QUIET = {"verbose": False}
NAMES = ["wide", "narrow", "head"]


@pytest.fixture(scope="module")
def problem():
    """A network of 2-bit weights, which cost accuracy, with data that the float model labels, and a ranking."""
    keras.utils.set_random_seed(3)
    image = keras.Input((8,), name="image")
    value = layers.Dense(24, activation="relu", name="wide")(image)
    value = layers.Dense(6, activation="relu", name="narrow")(value)
    model = keras.Model(image, layers.Dense(5, name="head")(value), name="hostile")
    x = np.random.default_rng(0).normal(size=(400, 8)).astype("float32")
    y = np.argmax(model.predict(x, verbose=0), axis=-1)
    spec = qdq.QuantizationSpec()
    spec.add(NAMES, quantize_config=qdq.LayerQuantizeConfig(weight={"num_bits": 2}))
    q_model = qdq.quantize_model(model, quantization_spec=spec, target="onnxruntime")
    qdq.calibrate(q_model, x, verbose=False)
    return q_model, x, y, qdq.sensitivity(q_model, x, verbose=False)


def accuracy_of(model, x, y):
    return float(np.mean(np.argmax(model(x), axis=-1) == y))


@pytest.fixture
def liar(monkeypatch):
    """Switches say of every placement that it is right."""

    class Liar:
        def __init__(self, *_):
            pass

        def measure(self, plan):
            return 1.0

    monkeypatch.setattr(searching, "SwitchedTrials", Liar)


def test_lying_switches_and_a_ranking_upside_down_change_what_is_tried_not_what_is_met(problem, liar):
    q_model, x, y, ranking = problem
    upside_down = dataclasses.replace(
        ranking, entries=tuple(dataclasses.replace(entry, value=-entry.value) for entry in ranking.entries)
    )
    _, held_out = split_samples(read_samples(q_model, (x, y)))

    result = qdq.search(q_model, (x, y), accuracy_floor=0.9, ranking=upside_down, **QUIET)

    held = np.concatenate([batch[0] for batch in held_out.batches])
    assert result.accuracy == pytest.approx(accuracy_of(result.q_model, held, held_out.labels[0]))
    assert result.met == (result.accuracy >= 0.9)
    assert result.confirmed_on == 200
    step = next(step for step in result.history if step.levels == result.best.levels)
    assert step.accuracy == result.search_accuracy < 1.0, "the history says what the model itself has"


def test_the_solver_believes_a_liar_and_the_outcome_does_not(problem, liar, monkeypatch):
    q_model, x, y, ranking = problem
    monkeypatch.setattr(search_run, "MOST_EXACT", 1)

    result = qdq.search(q_model, (x, y), accuracy_floor=0.99, ranking=ranking, confirmation_data=(x, y), **QUIET)

    assert result.accuracy == pytest.approx(accuracy_of(result.q_model, x, y))
    assert result.met == (None if result.accuracy >= 0.99 else False)
    assert not result.exact


class Watch:
    """A stopwatch whose first time of some placement is luck."""

    def __init__(self, lucky, gains=()):
        self.lucky, self.gains, self.measured = lucky, gains, []

    def __call__(self, *_):
        return self

    def ms(self, model, **_):
        levels = frozenset(layer for layer in NAMES if not model.plan.for_layer(layer).quantize_weight)
        self.measured.append(levels)
        if levels in self.lucky:
            return 0.5 if self.measured.count(levels) == 1 else 3.0
        return 1.0 + 0.1 * len(levels)

    def profile(self, _):
        return types.SimpleNamespace(gains=self.gains)

    def close(self):
        pass


@pytest.mark.parametrize("most", [1, 4096], ids=["refined", "all timed"])
def test_luck_and_a_lying_profile_do_not_win(problem, monkeypatch, most):
    monkeypatch.setattr(search_run, "MOST_EXACT", most)
    q_model, x, y, ranking = problem
    lies = [types.SimpleNamespace(layers=(name,), ms=0.0, baseline_ms=9.0) for name in (*NAMES, "nobody")]
    watch = Watch({frozenset(NAMES), frozenset(["wide"]), frozenset(["head"]), frozenset(["narrow"])}, lies)
    monkeypatch.setattr(searching, "Stopwatch", watch)

    result = qdq.search(q_model, (x, y), objective="ms", accuracy_floor=0.0, ranking=ranking, bits=(), **QUIET)

    assert result.exact == (most > 1)
    meeting = [step for step in result.history if step.meets]
    assert result.best.ms == min(step.ms for step in meeting)
    assert dict(result.best.levels) == {}
    assert result.best.ms == 1.0
    assert watch.measured.count(frozenset()) == 2, "what is returned was timed twice"


def test_a_budget_that_luck_alone_meets_is_not_met(problem, monkeypatch):
    q_model, x, y, ranking = problem
    every = [frozenset(chosen) for count in range(4) for chosen in itertools.combinations(NAMES, count)]
    monkeypatch.setattr(searching, "Stopwatch", Watch(set(every)))

    result = qdq.search(q_model, (x, y), objective="accuracy", max_ms=0.9, ranking=ranking, **QUIET)

    assert not result.met
    assert result.best.ms == 3.0
    assert "constraints" in result.reason


def test_times_of_two_sessions_are_beside_one_reference(monkeypatch):
    """Everything is twice as slow when a search goes on from its checkpoint: the reference too."""
    slow = [1.0]

    def profile(_, model, rounds):
        return types.SimpleNamespace(total_ms=slow[0] * model, baseline=types.SimpleNamespace(total_ms=slow[0] * 2.0))

    monkeypatch.setattr(Stopwatch, "profile", profile)
    known = Known()
    first = Stopwatch(None, None, None, known)
    assert first.ms(3.0) == pytest.approx(3.0)
    slow[0] = 2.0
    again = Stopwatch(None, None, None, known)
    assert again.ms(3.0) == pytest.approx(3.0)
    first.close()
    again.close()


def test_what_was_not_timed_does_not_miss_a_budget_of_time_least():
    goal = Goal("accuracy", 0.9, None, 1.0)
    nearly = SearchStep({"a": FLOAT}, 0.95, 10, 0, meets=False, ms=1.01)
    wrong = SearchStep({}, 0.899, 10, 0, meets=False)
    both = SearchStep({"b": FLOAT}, 0.95, 10, 0, meets=False, ms=1.5)

    assert goal.best([wrong, both, nearly]) is nearly
    less = Goal("accuracy", 0.9, 100, None)
    assert (
        less.best([SearchStep({}, 0.1, 90, 0, meets=False), SearchStep({}, 0.95, 101, 0, meets=False)]).accuracy == 0.95
    )


@pytest.mark.parametrize("objective", ["accuracy", "bytes", "macs"])
def test_of_equal_costs_an_accuracy_of_nan_is_the_worst(objective):
    broken, sound = (SearchStep({}, accuracy, 10, 0, meets=True) for accuracy in (float("nan"), 0.5))
    goal = Goal(objective, None, 100, None)
    for steps in ([broken, sound], [sound, broken]):
        assert goal.best(steps) is sound


def test_a_loss_is_that_beside_the_float_model_on_the_same_samples():
    goal = Goal("bytes", None, None, None, max_loss=0.1, ceiling=0.9)

    assert goal.is_accurate(0.8)
    assert not goal.is_accurate(0.79)
    assert goal.is_accurate(0.4, 0.5)
    assert not goal.is_accurate(0.8, 0.95)
    assert Goal("bytes", 0.85, None, None, max_loss=0.1, ceiling=0.9).floor_beside(0.9) == 0.85


def test_a_loss_holds_on_each_half_by_itself(problem):
    q_model, x, y, ranking = problem
    hard = np.where(np.arange(len(y)) % 3 == 0, (y + 1) % 5, y)
    data, others = (x[:200], y[:200]), (x[200:], hard[200:])
    arguments = {"confirmation_data": others, "ranking": ranking, **QUIET}

    result = qdq.search(q_model, data, max_loss=0.3, **arguments)
    absolute = qdq.search(q_model, data, accuracy_floor=0.7, **arguments)

    assert (result.met, absolute.met) == (True, False)
    assert result.float_accuracy < 0.7
    assert result.accuracy >= result.float_accuracy - 0.3
    assert result.search_floor == pytest.approx(0.7)
    assert "at most 0.3000 below float" in result.summary()


def test_what_held_out_samples_refuse_is_counted_and_nothing_is_called_the_best_of_all(problem):
    q_model, x, y, ranking = problem
    cheap = np.argmax(
        q_model(x), axis=-1
    )  # the data are right about the plan as given, and wrong about the float model

    data, others = (x[:200], cheap[:200]), (x[200:], y[200:])
    arguments = {"accuracy_floor": 0.3, "confirmation_data": others, "ranking": ranking, **QUIET}

    result = qdq.search(q_model, data, **arguments)
    strict = qdq.search(q_model, data, max_loss=0.02, **arguments)

    assert (result.met, result.unconfirmed, result.exact) == (True, 0, True)
    assert not strict.met
    assert strict.unconfirmed >= 1
    assert not strict.exact
    assert "not on the 200 held-out ones" in strict.reason


def test_held_out_samples_calibrate_nothing(problem):
    _, x, y, _ = problem
    model = qdq.strip(problem[0])
    _, held_out = split_samples(read_samples(model, (x, y)))
    wide = x.copy()
    mask = (x[:, None] == held_out.batches[0][0][0]).all(-1).any(-1)
    assert mask.sum() == 1
    wide[mask] *= 1000.0

    plans = qdq.search(model, (wide, y), accuracy_floor=0.0, **QUIET)

    low, high = plans.q_model.activation_ranges()["image"]
    assert max(abs(low), abs(high)) < 10.0
    with pytest.raises(DataError, match="no sample left to confirm"):
        qdq.search(model, (x[:1], y[:1]), accuracy_floor=0.0, **QUIET)


@pytest.mark.parametrize(
    "arguments",
    [{"max_loss": np.inf}, {"max_bytes": np.inf}, {"max_ms": np.inf}, {"accuracy_floor": np.inf, "metric": "sqnr"}],
    ids=str,
)
def test_a_budget_without_end_is_no_budget(problem, arguments):
    q_model, x, y, ranking = problem

    with pytest.raises(DataError, match="finite"):
        qdq.search(q_model, (x, y), ranking=ranking, **arguments, **QUIET)


def test_a_loss_against_an_infinite_metric_is_refused(problem):
    q_model, x, _, ranking = problem

    for metric in ("sqnr", lambda one, other: np.inf if np.array_equal(one, other) else 30.0):
        with pytest.raises(DataError, match="infinite here"):
            qdq.search(q_model, x, metric=metric, max_loss=3.0, ranking=ranking, **QUIET)


def test_a_metric_that_is_no_number_for_the_float_model_is_refused(problem):
    q_model, x, y, ranking = problem

    for how in ({"metric": lambda one, other: np.nan}, {"evaluate": lambda model: np.nan}):
        with pytest.raises(DataError, match="metric of the float model is NaN"):
            qdq.search(q_model, (x, y), objective="accuracy", ranking=ranking, **how, **QUIET)


def test_a_placement_whose_metric_is_no_number_meets_nothing_and_is_chosen_last(problem):
    q_model, x, y, ranking = problem

    def broken(reference, outputs):
        return 1.0 if np.array_equal(reference, outputs) else np.nan

    floor = qdq.search(q_model, (x, y), metric=broken, ranking=ranking, accuracy_floor=0.5, **QUIET)
    budget = qdq.search(q_model, (x, y), metric=broken, ranking=ranking, objective="accuracy", max_bytes=10**9, **QUIET)

    for found in (floor, budget):
        assert (found.met, found.accuracy) == (True, 1.0)
        assert not any(step.meets for step in found.history if np.isnan(step.accuracy))


def test_a_function_that_always_returns_no_number_but_for_the_float_model_ends(problem):
    q_model, x, _, ranking = problem

    found = qdq.search(
        q_model,
        x,
        evaluate=lambda model: np.nan if isinstance(model, qdq.QuantizedModel) else 1.0,
        accuracy_floor=0.5,
        ranking=ranking,
        **QUIET,
    )

    assert not found.met


def test_confirmation_data_that_chose_the_placement_are_said_to_confirm_nothing(problem):
    q_model, x, y, ranking = problem
    how = {"accuracy_floor": 0.1, "ranking": ranking, **QUIET}

    again = qdq.search(q_model, (x[:200], y[:200]), confirmation_data=(x[100:300], y[100:300]), **how)
    other = qdq.search(q_model, (x[:200], y[:200]), confirmation_data=(x[200:], y[200:]), **how)

    assert "not confirmed: 100 of the 200 confirmation samples also chose the placement" in again.reason
    assert "is met" not in again.reason
    assert (again.met, again.confirmed_on) == (None, 0)
    assert "held-out" not in again.summary()
    assert again.to_dict()["met"] is None
    assert "also chose" not in other.reason
    assert (other.met, other.confirmed_on) == (True, 200)


def test_samples_that_chose_the_placement_may_still_refuse_it(problem):
    q_model, x, y, ranking = problem

    found = qdq.search(
        q_model, (x, y), confirmation_data=(x, (y + 1) % 5), accuracy_floor=0.5, ranking=ranking, **QUIET
    )

    assert (found.best.meets, found.met) == (True, False)


def test_what_a_function_measures_is_confirmed_by_another_one_alone(problem):
    q_model, x, y, ranking = problem
    arguments = {"accuracy_floor": 0.5, "ranking": ranking, **QUIET}

    def chooses(model):
        return accuracy_of(model, x[:200], y[:200])

    def confirms(model):
        return accuracy_of(model, x[200:], y[200:])

    def refuses(model):
        return 0.3

    alone = qdq.search(q_model, x, evaluate=chooses, **arguments)
    confirmed = qdq.search(q_model, x, evaluate=chooses, confirm=confirms, **arguments)
    refused = qdq.search(q_model, x, evaluate=chooses, confirm=refuses, **arguments)

    assert alone.met is None
    assert alone.reason.startswith("The floor is reached on the samples of the search with")
    assert "give confirm=, a function like evaluate" in alone.reason
    assert (confirmed.met, confirmed.confirmed_on) == (True, 0)
    assert confirmed.accuracy == accuracy_of(confirmed.q_model, x[200:], y[200:])
    assert confirmed.search_accuracy == accuracy_of(confirmed.q_model, x[:200], y[:200])
    assert "The floor is met" in confirmed.reason
    assert "confirms" in confirmed.reason
    assert "not confirmed" not in confirmed.reason
    assert (refused.met, refused.accuracy, refused.exact) == (False, 0.3, False)
    assert refused.unconfirmed > 0
    assert "not by" in refused.reason


def test_a_budget_without_a_floor_needs_no_confirmation(problem):
    q_model, x, y, ranking = problem

    found = qdq.search(
        q_model, x, evaluate=lambda model: accuracy_of(model, x, y), objective="accuracy", max_bytes=10**9,
        ranking=ranking, **QUIET,
    )  # fmt: skip

    assert found.met is True, "bytes are no matter of samples"
    assert "Its accuracy is not confirmed" in found.reason


def test_a_checkpoint_knows_what_confirms(problem, tmp_path):
    q_model, x, _, ranking = problem
    arguments = {"accuracy_floor": 0.0, "ranking": ranking, "checkpoint": tmp_path / "known.json", **QUIET}

    def chooses(model):
        return 0.5

    qdq.search(q_model, x, evaluate=chooses, confirm=lambda model: 0.25, **arguments)

    with pytest.raises(qdq.errors.CheckpointError, match="another search"):
        qdq.search(q_model, x, evaluate=chooses, confirm=lambda model: 0.75, **arguments)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"confirm": max}, "second function of a search with evaluate"),
        ({"evaluate": max, "confirm": max}, "another function than evaluate"),
        ({"evaluate": max, "confirmation_data": np.zeros((2, 8))}, "give confirm="),
        ({"evaluate": max, "confirm": 0.5}, "confirm must be a function"),
    ],
    ids=str,
)
def test_what_cannot_confirm_is_named(problem, arguments, says):
    q_model, x, _, ranking = problem

    with pytest.raises(DataError, match=says):
        qdq.search(q_model, x, accuracy_floor=0.5, ranking=ranking, **arguments, **QUIET)


@pytest.mark.parametrize("threads", [0, -1, 1.5, True])
def test_wrong_threads_are_named_before_the_sweep(problem, monkeypatch, threads):
    q_model, x, y, _ = problem
    monkeypatch.setattr(searching, "sensitivity", lambda *_, **__: pytest.fail("the sweep began"))

    with pytest.raises(qdq.QDQError, match="threads must be an integer"):
        qdq.search(q_model, (x, y), objective="ms", threads=threads, **QUIET)


def test_wrong_cases_are_named_before_the_sweep(problem, monkeypatch):
    q_model, x, y, _ = problem
    monkeypatch.setattr(searching, "sensitivity", lambda *_, **__: pytest.fail("the sweep began"))

    with pytest.raises(qdq.SpecError, match="must hold instances"):
        qdq.search(q_model, (x, y), accuracy_floor=0.5, cases=["AutoQDQCase"], **QUIET)


def test_layers_that_the_ranking_lacks_are_searched_too(problem):
    q_model, x, y, ranking = problem
    partial = dataclasses.replace(ranking, entries=ranking.entries[:1], complete=False)
    arguments = {"evaluate": lambda model: accuracy_of(model, x, y), "accuracy_floor": 0.9, **QUIET}

    whole, found = (qdq.search(q_model, x, ranking=each, **arguments) for each in (ranking, partial))

    assert {layer for step in found.history for layer in step.levels} == set(NAMES)
    assert (found.best.cost, found.exact) == (whole.best.cost, whole.exact) == (whole.best.cost, True)


def test_layers_without_the_sites_of_the_ranking_count_as_the_least_sensitive_ones():
    keras.utils.set_random_seed(0)
    image = keras.Input((4,), name="image")
    left = keras.layers.Dense(4, name="left")(image)
    model = keras.Model(image, keras.layers.Dense(2, name="head")(keras.layers.Add(name="add")([left, image])))
    spec = qdq.QuantizationSpec()
    spec.add("add", quantize_weight=False, quantize_output=True)
    x = np.random.default_rng(0).normal(size=(64, 4)).astype("float32")
    q_model = qdq.quantize_model(model, quantization_spec=spec, target="onnxruntime")
    qdq.calibrate(q_model, x, verbose=False)
    ranking = qdq.sensitivity(q_model, x, sites="weight", verbose=False)
    assert {entry.layer for entry in ranking.entries} == {"left", "head"}
    samples = read_samples(q_model, x, 32, None)
    whole = search_run.Ranker(q_model, samples, ranking, None, **QUIET)(Start("", q_model.plan))
    values = {entry.layer: entry.value for entry in whole.entries}
    assert values["add"] == ranking.ranked()[-1].value


def test_a_ranking_without_layers_is_refused(problem):
    q_model, x, y, ranking = problem

    with pytest.raises(DataError, match="ranking has no layers"):
        qdq.search(q_model, (x, y), accuracy_floor=0.9, ranking=dataclasses.replace(ranking, entries=()), **QUIET)


def test_own_metrics_named_like_those_of_the_library_have_their_own_range(problem):
    q_model, x, y, ranking = problem

    def accuracy(reference, outputs, labels):
        return 100.0 * float(np.mean(np.argmax(outputs, axis=-1) == labels))

    def sqnr(reference, outputs):
        return 90.0 - float(np.mean((reference - outputs) ** 2))

    percent = qdq.search(q_model, (x, y), metric=accuracy, accuracy_floor=90.0, ranking=ranking, **QUIET)
    assert (percent.met, percent.float_accuracy) == (True, 100.0)
    assert qdq.search(q_model, x, metric=sqnr, max_loss=80.0, ranking=ranking, **QUIET).met

    own = qdq.sensitivity(q_model, x, metric=dataclasses.replace(METRICS["sqnr"], function=mse), **QUIET)
    assert (own.metric, own.own_metric, ranking.own_metric) == ("sqnr", True, False)
    trials = types.SimpleNamespace(base=q_model.plan, groups=None, expect=lambda more: None)
    noise = Moves(trials, own, Decisions(), None).noise()
    assert [noise[entry.layer, None] for entry in own.ranked()] == [1.0, 0.7, 0.7**2]  # by rank alone


def test_a_placement_whose_metric_is_no_number_is_beaten_by_a_smaller_one():
    steps = [SearchStep({}, 0.9, 10, 0, meets=True), SearchStep({"a": 8}, np.nan, 20, 0, meets=False)]

    assert [step.on_front for step in with_front(steps)] == [True, False]


@pytest.mark.parametrize("value", [np.nan, -np.inf])
def test_a_layer_whose_error_is_no_number_may_be_solved_for(problem, monkeypatch, value):
    q_model, x, y, ranking = problem
    monkeypatch.setattr(search_run, "MOST_EXACT", 1)
    entries = (dataclasses.replace(ranking.entries[0], value=value), *ranking.entries[1:])
    ranking = dataclasses.replace(ranking, entries=entries)

    found = qdq.search(q_model, (x, y), objective="accuracy", max_bytes=10**9, ranking=ranking, **QUIET)

    assert found.accuracy == found.float_accuracy
    assert set(found.float_layers) == set(NAMES)


@pytest.mark.parametrize(
    ("levels", "says"),
    [
        ({}, "no layers raised"),
        ({"a": 8, "b": FLOAT}, "2 layers raised"),
        ({"a": "inputs 0 without output"}, "the pairs of 1 layer moved"),
        ({"a": 8, "b": "no inputs with output", "c": "with output"}, "1 layer raised and the pairs of 2 layers moved"),
    ],
)
def test_the_reason_tells_moved_pairs_from_raised_layers(levels, says):
    step = SearchStep(levels, 1.0, 10, 0, meets=True)

    reason = reason_of(step, None, 1.0, Goal("macs", 0.5, None, None), complete=True, exact=False)

    assert reason.startswith(f"The floor is reached on the samples of the search with {says}. Its accuracy is not")
