"""The scores of the bench: what is kept of a training, which metric is drawn, and how certain a share is."""

import json
import math

import pytest

from qdq_widgets.curves import Curves, Scores, TrainingRun, interval, is_share

GOOD, BAD = Scores(0.5, {"mae": 0.25, "accuracy": 0.9}), Scores(1.5, {"mae": 0.75, "accuracy": 0.5})


def run(name="run 1", *scores, **fields):
    return TrainingRun(name, "tensorrt", 7, scores=scores, epochs=tuple(range(len(scores))), **fields)


def test_the_loss_is_told_apart_from_the_metrics():
    assert Scores.of_logs({"loss": 1, "accuracy": 0.5}) == Scores(1.0, {"accuracy": 0.5})
    without = Scores.of_logs({"accuracy": 0.5})
    assert math.isnan(without.loss)
    assert without.metrics == {"accuracy": 0.5}


def test_the_last_scores_of_a_run_are_its_own():
    assert run("a").last is None
    assert run("a", GOOD, BAD).last is BAD
    assert run("a").state == "running"
    assert run("a").replace(state="done").state == "done"


def test_a_run_of_a_known_name_is_replaced_in_its_place():
    one, two = run("one", GOOD), run("two")
    curves = Curves().with_run(one).with_run(two)
    assert curves.runs == (one, two)
    grown = run("one", GOOD, BAD)
    assert curves.with_run(grown).runs == (grown, two)
    assert curves.runs == (one, two), "the value before stays"
    assert curves.replace(fp32=GOOD) == Curves(GOOD, None, (one, two))


@pytest.mark.parametrize(
    ("curves", "metric"),
    [
        (Curves(), ""),
        (Curves(runs=(run("a"),)), ""),
        (Curves(fp32=Scores(1.0, {})), ""),
        (Curves(fp32=GOOD), "accuracy"),
        (Curves(fp32=Scores(1.0, {"mae": 1.0, "mse": 1.0})), "mae"),
        (Curves(ptq=GOOD), "accuracy"),
        (Curves(runs=(run("a"), run("b", GOOD))), "accuracy"),
        # The float model's metrics count before those of others.
        (Curves(fp32=Scores(1.0, {"mae": 1.0}), ptq=GOOD, runs=(run("a", GOOD),)), "mae"),
        (Curves(fp32=Scores(1.0, {"mae": 1.0, "Top5_ACC": 0.5})), "Top5_ACC"),
    ],
)
def test_an_accuracy_is_drawn_before_other_metrics(curves, metric):
    assert curves.metric == metric


def test_a_name_tells_a_share():
    assert [is_share(name) for name in ("acc", "val_accuracy", "Top5_ACC", "loss", "mae")] == [True] * 3 + [False] * 2


def test_scores_survive_a_file():
    trained = run("a", GOOD, BAD, loss_trace=((0.5, 1.25), (1, 1)), state="stopped")
    for curves in (Curves(), Curves(GOOD, BAD, (trained, run("b"))), Curves(ptq=GOOD)):
        again = Curves.from_dict(json.loads(json.dumps(curves.to_dict())))
        assert again == curves
        assert again.summary() == curves.summary()
    found = TrainingRun.from_dict(json.loads(json.dumps(trained.to_dict())))
    assert (found.loss_trace, found.epochs) == (((0.5, 1.25), (1.0, 1.0)), (0, 1))


def test_the_table_has_a_row_for_all_that_was_evaluated():
    assert Curves().summary() == Curves(runs=(run("a"),)).summary() == "Nothing has been evaluated yet."
    lines = Curves(GOOD, None, (run("run 1", GOOD, BAD), run("run 2"), run("run 3", Scores(2.0, {})))).summary()
    assert lines.splitlines() == [
        "FP32                     loss 0.5000  mae 0.2500  accuracy 0.9000",
        "run 1                    loss 1.5000  mae 0.7500  accuracy 0.5000",
        "run 3                    loss 2.0000",
    ]
    assert Curves(ptq=GOOD).summary().startswith("calibrated (PTQ)         loss 0.5000")


@pytest.mark.parametrize(
    ("share", "count", "ends"),
    # Brown, Cai, DasGupta (2001), and worked out by hand for a share of 0: z^2 / (n + z^2).
    [(0.5, 10, (0.2366, 0.7634)), (0.9, 100, (0.8256, 0.9448)), (0.0, 10, (0.0, 0.2775)), (1.0, 10, (0.7225, 1.0))],
)
def test_the_interval_of_a_share(share, count, ends):
    assert interval(share, count) == pytest.approx(ends, abs=1e-4)


@pytest.mark.parametrize("count", [1, 3, 10, 1000, 50_000])
def test_an_interval_lies_within_all_shares_and_holds_its_own(count):
    for hits in {0, 1, count // 2, count}:
        low, high = interval(hits / count, count)
        assert 0.0 <= low <= hits / count <= high <= 1.0
