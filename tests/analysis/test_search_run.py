"""The phases of a search on trials made up: where it may end early, and in what order starts are refined."""

import dataclasses
from types import SimpleNamespace

import pytest

from qdq_workbench.analysis import search_run
from qdq_workbench.analysis.metrics import METRICS
from qdq_workbench.analysis.samples import Samples
from qdq_workbench.analysis.search_goal import Goal
from qdq_workbench.analysis.search_moves import Decisions
from qdq_workbench.analysis.search_result import SearchStep
from qdq_workbench.analysis.search_run import Ranker, SearchContext, run
from qdq_workbench.analysis.search_starts import Start


def step(accuracy=0.9, weight_bytes=10, macs=0, meets=True):
    return SearchStep({}, accuracy, weight_bytes, macs, meets=meets)


class Phases:
    """Stands in for the strategies, and records which of them runs on which start."""

    def __init__(self, counts=(), stops_at=None):
        self.ran, self.counts, self.stops_at, self.proposals = [], dict(counts), stops_at, []

    def moves(self, trials, ranking, decisions, stop):
        count = self.counts.get(trials.name, 1)
        return SimpleNamespace(
            trials=trials, count=count, whole_count=count, places=trials.name in decisions.bits, ladders={}
        )

    def phase(self, name):
        def strategy(moves, **_):
            names = [each.trials.name for each in moves] if isinstance(moves, list) else moves.trials.name
            self.ran.append((name, names))
            if name == "solve_times":
                moves.trials.steps.extend(self.proposals)
            return self.ran[-1] != self.stops_at

        return strategy


@pytest.fixture
def search(monkeypatch):
    def run_it(goal, steps, *, counts=(), stops_at=None, stop=None, pairs=False, places=(), seconds=0.0, proposals=()):
        phases = Phases(counts, stops_at)
        monkeypatch.setattr(search_run, "Moves", phases.moves)
        phases.proposals.extend(proposals)
        for name in ("climb", "follow_times", "move_pairs", "solve", "solve_times", "try_all"):
            monkeypatch.setattr(search_run, name, phases.phase(name))
        monkeypatch.setattr(search_run, "time_again", lambda *_: phases.ran.append(("time_again", "")) or True)
        tried = []

        def trials(name, found):
            return SimpleNamespace(
                name=name, start=Start(name, None), goal=goal, forget_switches=lambda: tried.append(f"forget {name}"),
                of=lambda levels: tried.append(name) or found, steps=[found], seconds=lambda levels: seconds,
            )  # fmt: skip

        by_start = {name: trials(name, found) for name, found in steps.items()}
        measured = SimpleNamespace(goal=goal, prefetch=lambda likely: [None for _ in likely])
        decisions = Decisions(bits=tuple(places), pairs=pairs)
        found = run(SearchContext(measured, by_start, lambda start: None, decisions, stop))
        return found, phases.ran, tried

    return run_it


BYTES = Goal("bytes", 0.5, None, None)


def test_without_a_function_nothing_stops_a_search():
    for stop, stopped in ((None, False), (lambda: False, False), (lambda: True, True)):
        assert SearchContext(None, {}, None, Decisions(), stop).stopped() is stopped


@pytest.mark.parametrize(
    ("goal", "cheapest", "pairs", "ends"),
    [
        (BYTES, step(), False, True),
        (BYTES, step(meets=False), False, False),
        (BYTES, step(macs=5), True, True),
        (Goal("macs", 0.5, None, None), step(macs=5), False, True),
        (Goal("macs", 0.5, None, None), step(macs=5), True, False),
        (Goal("macs", 0.5, None, None), step(macs=0), True, True),
        (Goal("accuracy", 0.5, None, None), step(), False, False),
    ],
)
def test_it_ends_where_the_cheapest_start_is_the_best_already(search, goal, cheapest, pairs, ends):
    found, ran, _ = search(goal, {"": cheapest, "dear": step(weight_bytes=99, macs=99)}, pairs=pairs)

    assert (ran == []) == ends
    assert found == (True, True)


def test_a_search_that_needs_nothing_is_not_exact_where_time_is_limited(search):
    assert search(Goal("bytes", 0.5, None, 9.0), {"": step()})[0] == (True, False)


def test_a_few_placements_are_all_tried(search):
    found, ran, _ = search(BYTES, {"": step(meets=False), "x": step(meets=False)})
    assert found == (True, True)
    assert ran == [("climb", ""), ("climb", "x"), ("try_all", ["", "x"])]

    found, ran, _ = search(Goal("accuracy", None, 10, None), {"": step()})
    assert (found, ran) == ((True, True), [("try_all", [""])]), "without a floor there is nothing to climb to"


@pytest.mark.parametrize("stops_at", [("climb", "x"), ("try_all", ["", "x"])])
def test_what_is_stopped_is_neither_complete_nor_exact(search, stops_at):
    found, ran, _ = search(BYTES, {"": step(meets=False), "x": step(meets=False)}, stops_at=stops_at)

    assert found == (False, False)
    assert ran[-1] == stops_at


def test_of_many_placements_the_given_plan_and_the_two_most_promising_starts_are_refined(search):
    steps = {"": step(0.1, meets=False), "a": step(0.2, meets=False), "b": step(0.9, 50, meets=False),
             "c": step(0.5, 30, meets=False)}  # fmt: skip
    found, ran, tried = search(BYTES, steps, counts=dict.fromkeys(steps, search_run.MOST_EXACT))

    assert found == (True, False)
    order = ["", "b", "c"]
    assert ran == [pair for name in order for pair in (("climb", name), ("try_all", [name]))]
    assert [each for each in tried if each.startswith("forget")] == [f"forget {name}" for name in order]


def test_one_start_of_too_many_placements_is_solved(search):
    _, ran, _ = search(BYTES, {"": step(meets=False)}, counts={"": search_run.MOST_EXACT + 1})

    assert ran == [("climb", ""), ("solve", "")]


def test_pairs_are_moved_only_where_they_have_places(search):
    counts = {"": search_run.MOST_EXACT, "x": search_run.MOST_EXACT}
    steps = {"": step(meets=False), "x": step(meets=False)}
    _, ran, _ = search(BYTES, steps, counts=counts, places=["x"])

    assert ("move_pairs", "x") in ran
    assert ("move_pairs", "") not in ran


TIMED, MANY = Goal("ms", None, None, None), {"": search_run.MOST_EXACT + 1}


def test_times_are_followed_and_measured_again_at_the_end(search):
    found, ran, _ = search(TIMED, {"": step()}, counts=MANY)
    assert (found, ran) == ((True, False), [("follow_times", ""), ("solve_times", ""), ("time_again", "")])

    for phase, before in (("follow_times", []), ("solve_times", [("follow_times", "")])):
        found, ran, _ = search(TIMED, {"": step()}, counts=MANY, stops_at=(phase, ""))
        assert (found, ran) == ((False, False), [*before, (phase, "")])


def test_times_are_followed_again_from_a_better_proposal_of_the_solver(search):
    slow, fast, slower = (dataclasses.replace(step(), ms=ms) for ms in (2.0, 1.0, 3.0))
    once = [("follow_times", ""), ("solve_times", "")]

    assert search(TIMED, {"": slow}, counts=MANY, proposals=[fast])[1] == [
        *once,
        ("follow_times", ""),
        ("time_again", ""),
    ]
    assert search(TIMED, {"": slow}, counts=MANY, proposals=[slower])[1] == [*once, ("time_again", "")]


@pytest.mark.parametrize(
    ("count", "seconds", "exact"),
    [(64, 1e9, True), (65, 1e9, False), (65, 120.0 / 65, True), (65, 121.0 / 65, False), (2**12, 0.02, True),
     (2**12 + 1, 0.0, False)],
)  # fmt: skip
def test_all_files_are_timed_if_they_are_few_or_timed_soon(search, count, seconds, exact):
    found, ran, _ = search(TIMED, {"": step()}, counts={"": count}, seconds=seconds)

    assert found == (True, exact)
    assert (ran == [("try_all", [""])]) == exact


def test_a_stop_before_a_start_leaves_it_out(search):
    asked = []
    found, ran, tried = search(
        BYTES, {"": step(meets=False), "a": step(), "b": step()}, stop=lambda: asked.append(1) or len(asked) > 1
    )

    assert (found, ran, tried) == ((False, False), [], ["", "a"])


@dataclasses.dataclass(frozen=True)
class Entry:
    layer: str
    value: float


@dataclasses.dataclass(frozen=True)
class Report:
    entries: tuple
    metric: str = "mse"
    mode: str = "one_on"
    sites: tuple = ("weight",)
    own_metric: bool = False

    def ranked(self):
        return sorted(self.entries, key=lambda entry: -entry.value)


def placed(layer, site="weight", author="default"):
    return SimpleNamespace(layer=layer, site=site, author=author)


def start(*placements, key="case abc123"):
    return Start("case", SimpleNamespace(placements=placements), key)


@pytest.fixture
def ranker(monkeypatch):
    asked = []

    def sensitivity(q_model, samples, **how):
        asked.append(how)
        return Report(tuple(Entry(layer, 99.0) for layer in how["layers"]))

    monkeypatch.setattr(search_run, "sensitivity", sensitivity)
    monkeypatch.setattr(search_run, "replan", lambda q_model, plan: q_model)

    def make(report, labels=None, checkpoint=None, **how):
        asked.clear()
        return Ranker(None, Samples([], labels), report, checkpoint, **how), asked

    return make


KNOWN = Report((Entry("a", 1.0), Entry("b", 3.0)))


def test_a_ranking_of_all_layers_is_taken_as_it_is(ranker):
    rank, asked = ranker(KNOWN)

    assert rank(start(placed("a"), placed("b"), placed("new", author="target"))) is KNOWN
    assert asked == []


def test_after_a_stop_no_layer_is_measured(ranker):
    rank, asked = ranker(KNOWN, stop=lambda: True)

    assert rank(start(placed("new"))) is KNOWN
    assert asked == []
    rank, asked = ranker(KNOWN, stop=lambda: False)
    assert rank(start(placed("new"))).entries[-1].layer == "new"


def test_layers_that_the_ranking_lacks_are_measured_once_by_its_metric(ranker):
    rank, asked = ranker(KNOWN, verbose=False)
    found = rank(start(placed("a"), placed("new")))

    assert rank(start(placed("a"), placed("new"))) is found
    assert found.entries == (*KNOWN.entries, Entry("new", 99.0))
    assert asked == [
        {"layers": ["new"], "sites": ("weight",), "checkpoint": None, "metric": METRICS["mse"], "mode": "one_on",
         "verbose": False},
    ]  # fmt: skip


def test_layers_without_the_sites_of_the_ranking_count_as_the_least_sensitive_ones(ranker):
    rank, asked = ranker(KNOWN)
    found = rank(start(placed("x", "input"), placed("y"), placed("y", "input")))

    assert found.entries[2:] == (Entry("y", 99.0), Entry("x", 1.0))
    assert [(how["layers"], how["sites"]) for how in asked] == [
        (["y"], ("weight",)), (["x"], ("input", "weight", "output")),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("report", "labels", "known"),
    [
        (KNOWN, None, True),
        (dataclasses.replace(KNOWN, own_metric=True), None, False),
        (dataclasses.replace(KNOWN, metric="mine"), None, False),
        (dataclasses.replace(KNOWN, metric="accuracy"), None, False),
        (dataclasses.replace(KNOWN, metric="accuracy"), [1], True),
    ],
)
def test_values_of_another_metric_are_not_compared(ranker, report, labels, known):
    rank, asked = ranker(report, labels)

    assert rank(start(placed("new"))).entries[-1].value == (99.0 if known else 1.0)
    assert ("metric" in asked[0]) == known


def test_checkpoints_of_starts_are_beside_that_of_the_search(ranker, tmp_path):
    rank, asked = ranker(KNOWN, checkpoint=str(tmp_path / "search.json"))
    rank(start(placed("x", "input"), placed("y")))
    rank(start(placed("y"), key=""))

    names = [how["checkpoint"].relative_to(tmp_path).as_posix() for how in asked]
    assert names == [
        "search.sensitivity.abc123.json", "search.sensitivity.abc123.other.json", "search.sensitivity.missing.json",
    ]  # fmt: skip
