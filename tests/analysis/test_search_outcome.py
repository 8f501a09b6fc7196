"""Which placement of a search is confirmed, on measurements that a table stands in for, and what is said of it."""

import dataclasses
import math
from types import SimpleNamespace

import pytest

from qdq_workbench.analysis import search_outcome
from qdq_workbench.analysis.levels import FLOAT
from qdq_workbench.analysis.search_goal import Goal
from qdq_workbench.analysis.search_known import key_of
from qdq_workbench.analysis.search_outcome import Confirmation, Held, confirm_best, met_of, reason_of
from qdq_workbench.analysis.search_result import SearchStep

FLOOR = Goal("bytes", 0.9, None, None)
SMALL = Goal("accuracy", None, 100, None)
SAMPLES = Confirmation("judge", samples=50)


def step(name, accuracy=1.0, size=10, *, meets=True, case="", ms=None):
    return SearchStep({name: FLOAT}, accuracy, size, 0, meets=meets, ms=ms, case=case)


class Table:
    """Stands in for `Trials`: by the name of a layer, what its placement measures on held-out samples or built."""

    def __init__(self, measured, held=(), built=(), again=()):
        self.measured, self.held, self.of_built, self.again = measured, dict(held), dict(built), dict(again)
        self.asked, self.judged = [], set()

    def confirmed(self, levels, judge):
        name = next(iter(levels), "")
        self.asked.append(name)
        assert len(self.asked) <= 50, "it asks forever"
        self.judged.add(judge)
        return self.held.get(name, 0.0)

    def built(self, step):
        return self._measured(step, self.of_built)

    def time_again(self, step):
        return self._measured(step, self.again)

    def _measured(self, step, known):
        """Return the step, or the one that replaces it where something else was measured."""
        new = known.pop(next(iter(step.levels)), None)
        if new is not None:
            self.measured.steps[self.measured.steps.index(step)] = new
        return new or step


def confirm(steps, goal=FLOOR, source=SAMPLES, of_float=1.0, **tables):
    """Return the placement that is chosen, what holds of it, and the table of the given plan."""
    asked = []
    measured = SimpleNamespace(
        steps=list(steps), goal=goal, float_confirmed=lambda judge: asked.append(judge) or of_float
    )
    table = Table(measured, **tables)
    best, held = confirm_best(measured, {"": table}, source)
    return best, held, table, asked


def test_without_held_out_samples_the_cheapest_placement_is_the_best():
    steps = [step("a", size=30), step("b", size=10, meets=False), step("c", size=20)]
    best, held, table, asked = confirm(steps, source=None)
    assert (best, held) == (steps[2], None)
    assert (table.asked, asked) == ([], [])


def test_a_placement_that_held_out_samples_refuse_is_passed_over():
    steps = [step("a", size=10), step("b", size=20), step("c", size=30)]
    best, held, table, _ = confirm(steps, held={"a": 0.89, "b": 0.9, "c": 1.0, "": 0.5}, of_float=0.95)
    assert best is steps[1]
    assert held == Held(accuracy=0.9, float_accuracy=0.95, quantized_accuracy=0.5, refused=1, source=SAMPLES)
    assert table.asked == ["a", "b", "b", ""]
    assert table.judged == {"judge"}


def test_if_all_are_refused_the_best_of_the_search_is_returned_and_said_to_be_refused():
    steps = [step("a", size=10), step("b", size=20)]
    best, held, *_ = confirm(steps, held={"a": 0.1, "b": 0.2})
    assert best is steps[0]
    assert (held.accuracy, held.refused) == (0.1, 2)
    assert met_of(best, held, FLOOR) is False


def test_after_16_refusals_the_most_accurate_come_first_and_after_24_none():
    """A wrong measurement would otherwise be confirmed placement by placement, each of which takes a built model."""
    steps = [step(f"s{size}", accuracy=0.9 + (7 * size % 30) / 1000, size=size) for size in range(30)]
    _, held, table, _ = confirm(steps, held={})
    by_accuracy = sorted(steps[16:], key=lambda step: -step.accuracy)
    expected = [*steps[:16], *by_accuracy[:8]]
    assert table.asked[:24] == [next(iter(step.levels)) for step in expected]
    assert held.refused == 24


def test_if_nothing_meets_the_constraints_nothing_is_asked_for_on_the_way():
    steps = [step("a", 0.1, meets=False), step("b", 0.5, meets=False)]
    best, held, table, _ = confirm(steps, held={"b": 0.6})
    assert best is steps[1]
    assert (held.accuracy, held.refused) == (0.6, 0)
    assert table.asked == ["b", ""]


def test_a_loss_counts_from_the_float_model_on_the_same_samples():
    goal = Goal("bytes", None, None, None, max_loss=0.1, ceiling=1.0)
    steps = [step("a", size=10), step("b", size=20)]
    best, held, _, asked = confirm(steps, goal, held={"a": 0.69, "b": 0.71}, of_float=0.8)
    assert best is steps[1]
    assert held.is_enough(goal)
    assert not Held(0.69, 0.8, 0.0, 0, SAMPLES).is_enough(goal)
    assert set(asked) == {"judge"}
    # For a floor alone it is measured once, for the report.
    assert len(confirm(steps, held={"a": 1.0})[3]) == 1


def test_equal_levels_of_two_starts_are_two_placements():
    given, other = step("a", size=10), step("a", size=20, case="AutoQDQCase")
    measured = SimpleNamespace(steps=[given, other], goal=FLOOR, float_confirmed=lambda judge: 1.0)
    by_start = {"": Table(measured, {"a": 0.1, "": 0.3}), "AutoQDQCase": Table(measured, {"a": 0.95, "": 0.4})}
    best, held = confirm_best(measured, by_start, SAMPLES)
    assert best is other
    assert (held.accuracy, held.quantized_accuracy, held.refused) == (0.95, 0.3, 1)
    by_start[""].held, by_start["AutoQDQCase"].held = by_start["AutoQDQCase"].held, by_start[""].held
    measured.steps = [dataclasses.replace(given, weight_bytes=30), other]
    best, held = confirm_best(measured, by_start, SAMPLES)
    assert best is measured.steps[0]
    assert (held.accuracy, held.refused) == (0.95, 1)


def test_a_placement_whose_built_model_is_worse_gives_way():
    """Switches in one copy of the model measure most placements; what is returned is a model."""
    steps = [step("a", size=10), step("b", size=20)]
    worse = step("a", 0.5, size=10, meets=False)
    best, held, table, _ = confirm(steps, held={"b": 1.0}, built={"a": worse})
    assert best is steps[1]
    assert (held.refused, table.asked) == (0, ["b", "b", ""])


def test_a_placement_that_is_slower_when_timed_again_gives_way():
    goal = Goal("ms", 0.9, None, None)
    fast, other = step("a", ms=1.0), step("b", ms=2.0)
    best, *_ = confirm([fast, other], goal, held={"a": 1.0, "b": 1.0}, again={"a": step("a", ms=3.0)})
    assert best is other


def test_the_best_of_the_search_has_the_accuracy_of_its_built_model_too():
    steps = [step("a", 0.8, meets=False), step("b", 0.7, meets=False)]
    worse = step("a", 0.6, meets=False)
    best, *_ = confirm(steps, source=None, built={"a": worse})
    assert best is steps[1]
    assert confirm(steps[:1], source=None, built={"a": worse})[0] is worse


def test_many_are_asked_for_by_cost_some_more_by_accuracy_and_then_none():
    """A refusal may be chance of few samples, but samples that are asked often enough agree by chance."""
    assert (search_outcome._REFUSED_BY_COST, search_outcome._REFUSED_AT_MOST) == (16, 24)
    # The dearer, the more accurate: numbers 0 to 39.
    steps = [step(f"{number:02}", 0.9 + number / 1000, size=number + 1) for number in range(40)]
    best, held, table, _ = confirm(steps)
    by_cost, by_accuracy = range(16), range(39, 31, -1)
    assert table.asked[:-2] == [f"{number:02}" for number in (*by_cost, *by_accuracy)]
    assert (best, held.refused) == (steps[0], 24)


def test_of_equally_accurate_ones_the_cheaper_is_asked_for():
    steps = [step(f"{number:02}", size=number + 1) for number in range(20)]
    refused = {key_of(one.levels): one for one in steps[:16]}
    measured = SimpleNamespace(steps=steps[::-1], goal=FLOOR)
    assert search_outcome._next(measured, set(refused)) is steps[16]


@pytest.mark.parametrize(
    ("meets", "held", "goal", "met"),
    [
        (True, None, SMALL, True),
        (False, None, SMALL, False),
        (True, None, FLOOR, None),
        (True, Held(0.95, 1.0, 0.5, 0, SAMPLES), FLOOR, True),
        (True, Held(0.85, 1.0, 0.5, 0, SAMPLES), FLOOR, False),
        (False, Held(0.95, 1.0, 0.5, 0, SAMPLES), FLOOR, False),
        (True, Held(0.95, 1.0, 0.5, 0, Confirmation("judge", 50, reused=1)), FLOOR, None),
        (True, Held(0.85, 1.0, 0.5, 0, Confirmation("judge", 50, reused=1)), FLOOR, False),
        (True, Held(math.nan, 1.0, 0.5, 0, SAMPLES), SMALL, False),
    ],
)
def test_the_floor_is_met_only_on_samples_that_did_not_choose(meets, held, goal, met):
    assert met_of(step("a", meets=meets), held, goal) is met


def test_samples_that_chose_the_placement_count_as_none():
    assert Held(1.0, 1.0, 1.0, 0, SAMPLES).samples == 50
    assert Held(1.0, 1.0, 1.0, 0, Confirmation("judge", 50, reused=3)).samples == 0


def reason(best=None, held=None, goal=FLOOR, *, complete=True, exact=False, of_float=1.0):
    return reason_of(best or step("a"), held, of_float, goal, complete=complete, exact=exact)


def held(accuracy=0.95, refused=0, **source):
    return Held(accuracy, 1.0, 0.5, refused, Confirmation("judge", **{"samples": 50, **source}))


RAISED = "with 1 layer raised"
STOPPED = "; the search was stopped, so a better placement may exist"
UNCONFIRMED = f"The floor is reached on the samples of the search {RAISED}. Its accuracy is not confirmed:"
OTHERS = "Give other confirmation data, or none, to hold out half of the data."


@pytest.mark.parametrize(
    ("told", "expected"),
    [
        ({"held": held()}, f"The floor is met {RAISED}, confirmed on 50 held-out samples."),
        (
            {"held": held(refused=2)},
            f"The floor is met {RAISED}, confirmed on 50 held-out samples; 2 others were not.",
        ),
        ({"held": held(samples=0, by="mine")}, f"The floor is met {RAISED}, confirmed by mine."),
        (
            {"held": held(), "exact": True},
            f"The floor is met {RAISED}, confirmed on 50 held-out samples; no other placement is better.",
        ),
        (
            {"held": held(), "exact": True, "goal": Goal("ms", 0.9, None, None)},
            f"The floor is met {RAISED}, confirmed on 50 held-out samples; no other placement measured better.",
        ),
        (
            {"held": held(), "exact": True, "complete": False},
            f"The floor is met {RAISED}, confirmed on 50 held-out samples{STOPPED}.",
        ),
        (
            {"held": held(), "best": step("a", case="AutoQDQCase")},
            f"The floor is met {RAISED} from AutoQDQCase, confirmed on 50 held-out samples.",
        ),
        (
            {"held": held(0.85), "best": step("a", 0.9375)},
            "The floor is met on the samples that chose the placement (0.9375), not on the 50 held-out ones (0.8500).",
        ),
        (
            {"held": held(0.85, samples=0, by="mine"), "best": step("a", 0.9375)},
            "The floor is met on the samples that chose the placement (0.9375), not by mine (0.8500).",
        ),
        (
            {},
            f"{UNCONFIRMED} give confirm=, a function like evaluate, on samples that evaluate does not use.",
        ),
        (
            {"held": held(reused=20)},
            f"{UNCONFIRMED} 20 of the 50 confirmation samples also chose the placement. {OTHERS}",
        ),
        (
            {"held": held(), "goal": SMALL},
            "The best that was measured has 1 layer raised, confirmed on 50 held-out samples.",
        ),
        *(
            ({"best": step("a", meets=False), **more}, "The floor is not met by any placement that was tried.")
            for more in ({}, {"held": held(0.85)}, {"held": held()})
        ),
        (
            {"best": step("a", meets=False), "complete": False},
            "The search was stopped before a placement met the constraints.",
        ),
        (
            {"best": step("a", meets=False), "of_float": 0.85},
            "The floor cannot be met: the float model itself does not reach it.",
        ),
        *(
            (
                {"best": step("a", meets=False), "goal": goal},
                "No placement that was tried meets the constraints together; the returned one misses them least.",
            )
            for goal in (
                SMALL,
                Goal("bytes", 0.9, 100, None),
                Goal("bytes", 0.9, None, 1.0),
                Goal("ms", None, None, None),
            )
        ),
    ],
)
def test_the_sentence_says_what_was_found_and_by_what_it_is_confirmed(told, expected):
    assert reason(**told) == expected


@pytest.mark.parametrize(
    ("levels", "says"),
    [
        ({}, "no layers raised"),
        ({"a": 8, "b": FLOAT}, "2 layers raised"),
        ({"a": "with output"}, "the pairs of 1 layer moved"),
        ({"a": "with output", "b": "without output"}, "the pairs of 2 layers moved"),
        ({"a": FLOAT, "b": "with output"}, "1 layer raised and the pairs of 1 layer moved"),
    ],
)
def test_moved_pairs_are_told_apart_from_raised_layers(levels, says):
    best = SearchStep(levels, 1.0, 10, 0, meets=True)
    assert reason(best, held()) == f"The floor is met with {says}, confirmed on 50 held-out samples."
