"""Placements of a search: each is measured once, timed only if it may be chosen, and remembered in the checkpoint."""

import math
from types import SimpleNamespace

import keras
import numpy as np
import pytest
from keras import layers

import qdq_workbench as qdq
from qdq_workbench.analysis.levels import FLOAT
from qdq_workbench.analysis.search_goal import Goal
from qdq_workbench.analysis.search_known import Known, key_of
from qdq_workbench.analysis.search_starts import Start
from qdq_workbench.analysis.search_trials import Measured, Trials

A, B = {"a": FLOAT}, {"b": FLOAT}


@pytest.fixture(scope="module")
def q_model():
    image = keras.Input((2,), name="image")
    model = keras.Model(image, layers.Dense(2, name="b")(layers.Dense(2, name="a")(image)))
    made = qdq.quantize_model(model, target="onnxruntime")
    qdq.calibrate(made, np.ones((2, 2), "float32"), verbose=False)
    return made


class Judge:
    """Gives the float model 1.0, and every other one a share of its layers without quantized weights."""

    def __init__(self, known=None):
        self.known, self.calls = known or {}, []

    def __call__(self, model, float_model):
        if model is float_model:
            self.calls.append("float")
            return 1.0
        quantized = [p.layer for p in model.plan.placements if p.site == "weight"]
        self.calls.append(quantized)
        return self.known.get(tuple(quantized), 1.0 - len(quantized) / 4)


class Watch:
    def __init__(self, gains=()):
        self.calls, self.gains, self.profiled = [], gains, 0

    def ms(self, model, *, longer=False):
        self.calls.append(longer)
        return len(model.plan.placements) + 0.5 * longer

    def profile(self, model):
        self.profiled += 1
        return SimpleNamespace(gains=self.gains)


@pytest.fixture
def trials_of(q_model):
    def make(goal=None, judge=None, watch=None, known=None, switches=None, start="", ahead=None, shown=None):
        goal = goal or Goal("bytes", 0.0, None, None)
        show = (lambda *told: shown.append(told)) if shown is not None else (lambda *_: None)
        measured = Measured(q_model, judge or Judge(), goal, known or Known(), show, watch, ahead)
        return Trials(measured, Start(start, q_model.plan, f"{start} key" if start else ""), switches)

    return make


def test_a_placement_is_measured_once_however_it_is_written(trials_of):
    trials = trials_of(judge=Judge())
    both = trials.of({"a": FLOAT, "b": 8})

    assert trials.of({"b": 8, "a": FLOAT}) is both
    assert trials.of({}) is trials.of({"a": None}) is not both
    assert len(trials.measured.judge.calls) == 2
    assert trials.steps == [both, trials.of({})]
    assert (both.accuracy, both.levels, both.case, both.ms) == (0.75, {"a": FLOAT, "b": 8}, "", None)
    assert trials.of(A).weight_bytes > trials.of({}).weight_bytes
    assert (trials.of(A).float_macs, trials.of({}).float_macs) == (4, 0)


def test_what_the_checkpoint_knows_is_not_measured(trials_of):
    known = Known(accuracies={key_of(A): 0.125, FLOAT: 0.5}, confirmed={key_of(A): 0.25, FLOAT: 0.0})
    known.switched[key_of(A)] = 0.75  # the built model counts
    trials = trials_of(known=known)

    assert trials.of(A).accuracy == 0.125
    assert trials.confirmed(A, trials.measured.judge) == 0.25
    assert (trials.measured.of_float(), trials.measured.float_confirmed(trials.measured.judge)) == (0.5, 0.0)
    assert trials.measured.judge.calls == []


def test_the_float_model_is_judged_once_on_either_half(trials_of):
    trials = trials_of()
    held_out = Judge()

    for _ in range(2):
        assert trials.measured.of_float() == 1.0
        assert trials.measured.float_confirmed(held_out) == 1.0
        assert trials.confirmed(A, held_out) == 0.75
    assert trials.measured.judge.calls == ["float"]
    assert held_out.calls == ["float", ["b"]]
    assert trials.measured.steps == [], "what is confirmed is no new trial"


@pytest.mark.parametrize(
    ("goal", "timed"),
    [
        (Goal("ms", 0.75, None, None), [False, True, True]),
        (Goal("ms", None, 24, None), [True, False, False]),
        (Goal("ms", None, None, None), [True, True, True]),
    ],
)
def test_only_what_meets_the_other_constraints_is_timed(trials_of, goal, timed):
    trials = trials_of(goal, watch=Watch())
    smallest = trials.of({}).weight_bytes
    assert smallest == 24

    steps = [trials.of(levels) for levels in ({}, A, {"a": FLOAT, "b": FLOAT})]
    assert [step.ms is not None for step in steps] == [step.meets for step in steps] == timed
    assert len(trials.measured.stopwatch.calls) == sum(timed)


def test_a_time_beyond_its_limit_is_kept_but_does_not_meet(trials_of):
    trials = trials_of(Goal("accuracy", None, None, 1.0), watch=Watch())

    assert (trials.of({}).ms, trials.of({}).meets) == (len(trials.base.placements), False)


def test_a_second_time_replaces_the_first_one_once(trials_of):
    trials = trials_of(Goal("ms", None, None, None), watch=Watch())
    first = trials.of({})
    again = trials.time_again(first)

    assert again.ms == first.ms + 0.5
    assert trials.steps == [again]
    assert trials.of({}) is trials.time_again(again) is again
    assert trials.measured.stopwatch.calls == [False, True]


def test_what_was_not_timed_is_not_timed_again(trials_of):
    without = trials_of()
    assert without.time_again(without.of({})).ms is None
    trials = trials_of(Goal("ms", 0.75, None, None), watch=Watch())
    assert trials.time_again(trials.of({})).ms is None
    assert trials.measured.stopwatch.calls == []


def test_a_resumed_search_gives_a_new_step_its_first_time(trials_of):
    known = Known(times={key_of({}): 3.0}, again={key_of({}): 4.0})
    trials = trials_of(Goal("ms", None, None, None), watch=Watch(), known=known)

    assert trials.of({}).ms == 3.0
    assert trials.time_again(trials.of({})).ms == 4.0
    assert trials.measured.stopwatch.calls == []


def test_members_of_a_group_take_the_level_of_the_first(trials_of):
    trials = trials_of()
    trials.groups = {"a": ("a", "b")}

    assert trials.of({"a": 8}).levels == {"a": 8, "b": 8}
    assert trials.of({"a": None, "unknown": 8}).levels == {}
    assert trials.plan(A) == trials.plan(A)
    assert trials.of(A).weight_bytes == trials_of().of({**A, **B}).weight_bytes


class Switched:
    def __init__(self, values):
        self.values, self.measured = values, 0

    def measure(self, plan):
        self.measured += 1
        return self.values.get(tuple(p.layer for p in plan.placements if p.site == "weight"))


def test_switches_measure_what_they_can_and_the_rest_is_built(trials_of):
    made = []

    def switches(plan):
        made.append(Switched({("b",): 0.9}))
        return made[-1]

    trials = trials_of(switches=switches)
    assert trials.of({}).accuracy == 0.5
    assert made == [], "the given plan itself is built"
    assert (trials.of(A).accuracy, trials.of(B).accuracy) == (0.9, 0.75)
    assert [each.measured for each in made] == [2]
    assert trials.measured.judge.calls == [["a", "b"], ["a"]]
    assert trials.measured.known.switched == {key_of(A): 0.9}
    trials.forget_switches()
    trials.of({**A, **B})
    assert len(made) == 2


def test_the_accuracy_of_the_built_model_replaces_that_of_switches(trials_of):
    trials = trials_of(Goal("bytes", 0.8, None, None), switches=lambda _: Switched({("b",): 0.9}))
    switched = trials.of(A)
    built = trials.built(switched)

    assert (switched.accuracy, switched.meets) == (0.9, True)
    assert (built.accuracy, built.meets) == (0.75, False)
    assert trials.steps == [built]
    assert trials.built(built) is trials.of(A) is built


def test_a_built_model_whose_accuracy_is_nan_is_replaced_once(trials_of):
    trials = trials_of(judge=Judge({("b",): math.nan}))
    step = trials.of(A)

    assert math.isnan(step.accuracy)
    assert trials.built(step) is step


def test_workers_are_asked_for_what_is_not_known(trials_of):
    trials = trials_of(switches=lambda _: None)
    trials.measured.known.accuracies[key_of(A)] = 1.0
    trials.measured.known.switched[key_of(B)] = 1.0

    assert trials.request(A) is trials.request(B) is None
    request = trials.request({"a": 8})
    assert (request.key, request.start, request.by_switches) == (key_of({"a": 8}), trials.base, True)
    assert request.plan == trials.plan({"a": 8})
    assert not trials.request({}).by_switches
    assert not trials_of().request(A).by_switches


class Ahead:
    def __init__(self, width):
        self.width, self.asked = width, []

    def measure(self, requests, learn):
        self.asked.append([request.key for request in requests])
        for request in requests:
            learn(request.key, SimpleNamespace(by_switches=request.by_switches, accuracy=0.625))


def test_workers_measure_ahead_and_are_not_asked_again(trials_of):
    trials = trials_of(ahead=Ahead(2), switches=lambda _: None)
    likely = [(trials, levels) for levels in ({}, A, B)]
    trials.measured.prefetch(likely)
    trials.measured.prefetch(likely)

    assert trials.measured._ahead.asked == [[key_of({}), key_of(A)]]
    assert trials.measured.known.accuracies == {key_of({}): 0.625}
    assert trials.measured.known.switched == {key_of(A): 0.625}
    assert trials.of(A).accuracy == 0.625
    assert trials.measured.judge.calls == []


def test_one_worker_is_none(trials_of):
    trials = trials_of(ahead=Ahead(1))
    trials.measured.prefetch([(trials, {})])
    trials_of().measured.prefetch([(trials, {})])

    assert trials.measured._ahead.asked == []


def test_progress_is_never_beyond_its_total(trials_of):
    shown = []
    trials = trials_of(shown=shown)
    trials.expect(2)
    for levels in ({}, A, B):
        trials.of(levels)

    assert shown == [(1, 2, "0.5000"), (2, 2, "0.7500"), (3, 3, "0.7500")]
    trials.expect(1)
    assert trials.measured.expected == 4


def test_steps_belong_to_their_start(trials_of, q_model):
    given = trials_of()
    other = Trials(given.measured, Start("case", q_model.plan, "case key"), None)
    given.of({})
    step = other.of({})

    assert other.steps == [step]
    assert (step.case, step.label) == ("case", "case")
    assert len(given.measured.judge.calls) == 2, "the start is part of the key"


def gain(ms, baseline_ms, *names):
    return SimpleNamespace(layers=names, ms=ms, baseline_ms=baseline_ms)


def test_groups_that_gain_least_from_integers_come_first_and_are_profiled_once(trials_of):
    watch = Watch((gain(3.0, 1.0, "a"), gain(1.0, 2.0, "b", "c"), gain(1.0, 1.0, "d")))
    trials = trials_of(watch=watch)

    for _ in range(2):
        assert trials.least_gaining({**A, **B}) == [(["b", "c"], -1.0), (["d"], 0.0), (["a"], 2.0)]
    assert watch.profiled == 1
    assert trials.measured.known.groups == [["b", "c"], ["d"], ["a"]]
    assert trials.measured.known.gains == [-1.0, 0.0, 2.0]
    assert trials_of().least_gaining(A) == []


def test_how_long_it_takes_to_time_a_file_is_measured_once_and_kept_in_the_checkpoint(trials_of):
    first, second, known = Watch(), Watch(), Known()

    seconds = trials_of(watch=first, known=known).seconds(A)

    assert seconds > 0.0
    assert trials_of(watch=second, known=known).seconds(A) == seconds
    assert (first.calls, second.calls) == ([False], [])
