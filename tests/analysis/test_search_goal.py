"""What a goal accepts, how it orders placements, and which goals are refused."""

import json
import math

import numpy as np
import pytest

from qdq_workbench.analysis.metrics import get_metric
from qdq_workbench.analysis.search_goal import OBJECTIVES, Goal, check_float_accuracy, check_goal
from qdq_workbench.analysis.search_result import SearchStep
from qdq_workbench.errors import DataError

ACCURACY = get_metric("accuracy")


def goal(objective="bytes", floor=None, max_bytes=None, max_ms=None, **more):
    return Goal(objective, floor, max_bytes, max_ms, **more)


def step(accuracy=0.9, weight_bytes=10, macs=0, meets=True, ms=None, levels=()):
    return SearchStep(dict.fromkeys(levels, 8), accuracy, weight_bytes, macs, meets=meets, ms=ms)


def test_numbers_of_numpy_become_numbers_that_json_can_hold():
    made = goal(floor=np.float32(0.5), max_bytes=np.int64(7), max_ms=np.float64(2), max_loss=np.float16(0.25))

    assert json.dumps([made.floor, made.max_bytes, made.max_ms, made.max_loss]) == "[0.5, 7, 2.0, 0.25]"


@pytest.mark.parametrize(
    ("made", "timed", "floored"),
    [
        (goal(floor=0.0), False, True),
        (goal("accuracy", max_bytes=1), False, False),
        (goal("ms"), True, False),
        (goal("accuracy", max_ms=1.0), True, False),
        (goal("macs", max_loss=0.0), False, True),
    ],
)
def test_what_a_goal_has_to_measure(made, timed, floored):
    assert (made.is_timed, made.has_floor) == (timed, floored)


def test_of_a_floor_and_a_loss_the_stricter_one_counts():
    assert goal(max_bytes=1).floor_beside(0.9) is None
    assert goal(floor=0.5).floor_beside(0.9) == 0.5
    assert goal(max_loss=0.25).floor_beside(0.75) == pytest.approx(0.5)
    both = goal(floor=0.5, max_loss=0.25)
    assert both.floor_beside(1.0) == pytest.approx(0.75)
    assert both.floor_beside(0.6) == 0.5


@pytest.mark.parametrize(("quantized", "floating", "loss"), [(6, 10, 0.08), (12, 13, 0.02), (5, 20, 0.3)])
def test_a_loss_of_whole_samples_is_not_missed_by_rounding_errors(quantized, floating, loss):
    assert goal(max_loss=loss).is_accurate(quantized / 50, floating / 50)
    assert not goal(max_loss=loss).is_accurate((quantized - 1) / 50, floating / 50)


def test_a_limit_itself_is_within_it():
    assert goal(floor=0.9).is_accurate(0.9)
    assert not goal(floor=0.9).is_accurate(0.8999)
    assert goal(max_bytes=10).is_small(10)
    assert not goal(max_bytes=10).is_small(11)
    assert goal(max_ms=1.5).is_fast(1.5)
    assert not goal(max_ms=1.5).is_fast(1.51)


def test_without_limits_everything_but_nan_is_accepted():
    free = goal("accuracy")

    assert free.is_accurate(-math.inf)
    assert not free.is_accurate(math.nan)
    assert free.is_small(10**12)
    assert free.is_fast(None)
    assert not goal(max_ms=1.0).is_fast(None)


def test_a_loss_counts_from_the_float_model_on_the_samples_of_the_search_unless_others_are_given():
    made = goal(max_loss=0.25, ceiling=1.0)

    assert not made.is_accurate(0.5)
    assert made.is_accurate(0.5, 0.75)
    assert made.is_accurate(0.0, 0.0), "an accuracy of 0 is one"


@pytest.mark.parametrize("broken", [{"accuracy": 0.4}, {"weight_bytes": 101}, {"ms": 2.1}, {"ms": None}])
def test_every_constraint_counts(broken):
    made = goal("accuracy", 0.5, 100, 2.0)
    fitting = {"accuracy": 0.5, "weight_bytes": 100, "ms": 2.0}

    assert made.is_met(step(**fitting))
    assert not made.is_met(step(**{**fitting, **broken}))


@pytest.mark.parametrize(
    ("objective", "best_first"),
    [
        (
            "bytes",
            [step(0.1, 9, 9), step(0.1, 10, 4), step(0.7, 10, 5), step(0.6, 10, 5), step(0.6, 10, 5, levels="a")],
        ),
        ("macs", [step(0.1, 9, 4), step(0.1, 10, 4), step(0.7, 8, 5), step(0.6, 8, 5), step(0.6, 8, 5, levels="a")]),
        ("accuracy", [step(0.7, 9, 9), step(0.6, 8, 9), step(0.6, 9, 4), step(0.6, 9, 5), step(0.6, 9, 5, levels="a")]),
        ("ms", [step(0.1, 9, 9, ms=1), step(0.1, 8, 5, ms=2), step(0.1, 9, 4, ms=2), step(0.2, 9, 5, ms=2), step()]),
    ],
)
def test_the_order_of_placements_by_objective(objective, best_first):
    made = goal(objective)

    assert sorted([*best_first[1:], best_first[0]], key=made.key) == best_first
    assert made.best(best_first[::-1]) is best_first[0]


def test_accuracy_beyond_the_float_models_is_none_only_for_the_objective_accuracy():
    same, more = step(0.9, 20), step(0.95, 20, levels="a")

    assert goal("accuracy", ceiling=0.9).best([more, same]) is same
    assert goal("bytes", ceiling=0.9).best([more, same]) is more


def test_a_search_goes_on_from_placements_that_meet_the_constraints():
    made = goal("accuracy", 0.5)
    cheap, dear = step(0.49, 1, meets=False), step(0.5, 1000)

    assert made.promise(dear) < made.promise(cheap)
    assert goal(floor=0.5).promise(dear) < goal(floor=0.5).promise(cheap)
    assert made.promise(step(0.49, meets=False)) < made.promise(step(0.2, meets=False))
    assert made.promise(step(0.9)) < made.promise(step(0.5))


def test_excesses_are_relative_and_add_up():
    made = goal("accuracy", max_bytes=100, max_ms=10.0)
    bytes_alone, both = step(1.0, 130, meets=False, ms=9.0), step(1.0, 120, meets=False, ms=12.0)

    assert made.best([both, bytes_alone]) is bytes_alone
    assert made.best([both, step(1.0, 110, meets=False, ms=12.5)]).weight_bytes == 110
    floored = goal("accuracy", 100.0, max_bytes=100)
    assert floored.best([step(99.0, 125, meets=False), step(80.0, 100, meets=False)]).accuracy == 80.0
    assert floored.best([step(99.0, 101, meets=False), step(80.0, 10, meets=False)]).accuracy == 99.0
    negative = goal("accuracy", -1.0, max_bytes=100)
    assert negative.best([step(-1.1, 100, meets=False), step(-1.0, 150, meets=False)]).accuracy == -1.1


def test_of_equal_excesses_the_more_accurate_one_then_the_cheaper_one_comes_first():
    made = goal("accuracy", max_bytes=100)
    steps = [step(0.9, 110, 5, meets=False), step(0.9, 110, 6, meets=False), step(0.8, 110, 0, meets=False)]

    assert made.best(steps[::-1]) is steps[0]
    assert made.best(steps[:0:-1]) is steps[1]


@pytest.mark.parametrize("floor", [0.0, -1.0])
def test_of_placements_below_a_floor_that_is_not_positive_the_nearest_one_comes_first(floor):
    near, far = step(floor - 0.1, 500, meets=False), step(floor - 0.2, 1, meets=False)

    assert goal(floor=floor).best([far, near]) is near


def test_a_placement_whose_accuracy_is_nan_misses_most():
    made = goal(floor=0.9)

    assert made.best([step(math.nan, 1, meets=False), step(0.0, 1000, meets=False)]).accuracy == 0.0
    assert made.best([step(math.nan, 2, meets=False), step(math.nan, 1, meets=False)]).weight_bytes == 1


@pytest.mark.parametrize(
    "made",
    [
        *(goal(objective, 0.0) for objective in OBJECTIVES),
        goal(floor=1.0),
        goal(floor=np.array(0.5)),
        goal(max_loss=0),
        goal("accuracy", max_bytes=1),
        goal(max_bytes=1),
        goal(max_ms=1e-9),
        goal("ms"),
        goal("macs"),
    ],
)
def test_goals_that_can_be(made):
    check_goal(made, ACCURACY, None)


@pytest.mark.parametrize(
    ("made", "says"),
    [
        (goal("size", 0.5), r"objective must be one of 'bytes', 'ms', 'macs', 'accuracy'. Received: objective='size'"),
        (goal(floor=True), "accuracy_floor must be a number, such as 0.9, and finite. Received: accuracy_floor=True"),
        (goal(floor=np.zeros(1)), "accuracy_floor must be a number"),
        (goal(floor=math.nan), "accuracy_floor must be a number"),
        (goal(floor=1.01), "for 90 % give 0.9. Received: accuracy_floor=1.01"),
        (goal(floor=-0.01), "An accuracy is a share from 0 to 1"),
        (goal(max_bytes=0), "max_bytes must be a number above 0 and finite, or None. Received: max_bytes=0"),
        (goal(max_bytes=10**400), "max_bytes must be a number above 0 and finite"),
        (goal(max_bytes=True), "max_bytes must be a number above 0"),
        (goal(max_ms=0.0), "max_ms must be a number above 0 and finite, or None. Received: max_ms=0.0"),
        (goal(max_loss=-0.01), "max_loss must be a number of at least 0.* Received: max_loss=-0.01"),
        (goal(max_loss="0.01"), "max_loss must be a number of at least 0"),
        (goal(), "Nothing is asked for.* Received: no floor, no budget"),
    ],
)
def test_goals_that_cannot_be(made, says):
    with pytest.raises(DataError, match=says):
        check_goal(made, ACCURACY, None)


def test_what_holds_for_the_metrics_of_the_library_does_not_for_an_own_evaluation():
    for made, metric, says in (
        (goal(floor=0.5), "mse", "'mse' is the opposite"),
        (goal(floor=30.0), "accuracy", "An accuracy is a share"),
        (goal(max_loss=3.0), "sqnr", r"infinite here.* such as 30 for 30 dB.* Received: max_loss=3.0, metric 'sqnr'"),
    ):
        with pytest.raises(DataError, match=says):
            check_goal(made, get_metric(metric), None)
        check_goal(made, get_metric(metric), len)
    check_goal(goal(floor=30.0), get_metric("sqnr"), None)


def test_the_float_model_has_to_have_a_metric_to_compare_with():
    assert check_float_accuracy(goal(max_loss=0.1), 0.9, "accuracy") == 0.9
    assert check_float_accuracy(goal(floor=30.0), math.inf, "sqnr") == math.inf
    with pytest.raises(DataError, match=r"is NaN, .* Received: metric 'mine'"):
        check_float_accuracy(goal(floor=0.5), math.nan, "mine")
    with pytest.raises(DataError, match="infinite here"):
        check_float_accuracy(goal(max_loss=0.1), -math.inf, "mine")
