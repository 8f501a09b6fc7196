"""The texts of the bench's bar: what the last change did, and how the present plan is and scores."""

from types import SimpleNamespace

import pytest
from mock_graphs import chain

import qdq_workbench as qdq
from qdq_widgets.curves import Curves, Scores
from qdq_widgets.effect_estimates import Effect, Figure
from qdq_widgets.header import effect_html, summary_html, summary_texts
from qdq_widgets.snapshots import CALIBRATED, CORRECTED, FINE_TUNED, Snapshot

MINUS = "\u2212"
PLAN = qdq.plan_placement(chain(("Conv2D", "conv"), ("ReLU", "relu"), ("Dense", "head")), target="onnxruntime")


# ---------------------------------------------------------------------- the last change


def test_the_header_says_what_is_estimated_and_what_is_measured():
    effect = Effect(
        "toggle <b>", Figure(-0.4, None, "points", basis="a sweep"), Figure(1536.0, None, "B"), metric="accuracy"
    )
    page = effect_html(effect)
    assert "estimated" in page
    assert "qdq-estimate" in page
    assert f"accuracy ≈ {MINUS}0.4 points" in page
    assert "size ≈ +1.5 KiB" in page
    assert "toggle &lt;b&gt;" in page
    done = Effect("x", None, Figure(0.0, 9.0, "B", measured=True), Figure(-0.01, 1.0, "ms", measured=True), "measured")
    page = effect_html(done)
    assert "measured" in page
    assert "≈" not in page
    assert "size ±0 B" in page
    assert f'class="qdq-better">time {MINUS}0.01 ms ({MINUS}1.0 %)' in page
    assert effect_html(None) == effect_html(Effect("x")) == ""


def shown(change, unit, value=None, *, measured=True, **fields):
    """Return the one figure of an effect on the score, as in the bar: style and text."""
    page = effect_html(Effect("x", Figure(change, value, unit, measured), metric="m", **fields))
    look, _, text = page.rpartition('<span class="')[2].partition('">')
    return look, text.removesuffix("</span></span>")


@pytest.mark.parametrize(
    ("change", "unit", "text"),
    [
        (1023, "B", "+1023 B"),
        (-1024, "B", f"{MINUS}1.0 KiB"),
        (0.25, "points", "+0.2 points"),
        (0.04, "points", "±0 points"),
        (-0.04, "points", "±0 points"),
        (9.94, "dB", "+9.9 dB"),
        (-0.0123, "dB", f"{MINUS}0.012 dB"),
        (12.34, "dB", "+12.3 dB"),
        (-0.3, "B", "±0 B"),
    ],
)
def test_a_change_has_a_sign_and_the_digits_that_say_something(change, unit, text):
    assert shown(change, unit)[1] == f"m {text}"


@pytest.mark.parametrize(
    ("change", "value", "unit", "percents"),
    [
        (-50.0, 100.0, "B", f" ({MINUS}33.3 %)"),  # of the 150 before
        (20.0, 120.0, "ms", " (+20.0 %)"),
        (0.02, 100.0, "ms", ""),
        (7.0, 7.0, "B", ""),  # nothing before
        (7.0, None, "B", ""),
        (7.0, 80.0, "points", ""),
    ],
)
def test_sizes_and_times_are_told_in_percent_of_the_value_before(change, value, unit, percents):
    assert shown(change, unit, value)[1].partition(unit)[2] == percents


@pytest.mark.parametrize(
    ("change", "higher_is_better", "look"),
    [
        (1.0, True, "qdq-better"),
        (-1.0, True, "qdq-worse"),
        (1.0, False, "qdq-worse"),
        (-1.0, False, "qdq-better"),
        (0.0, False, "qdq-same"),
        (-0.01, False, "qdq-same"),  # rounds to 0
    ],
)
def test_the_colour_of_a_change_follows_what_is_better(change, higher_is_better, look):
    assert shown(change, "points", higher_is_better=higher_is_better)[0] == look


def test_a_smaller_file_and_a_shorter_run_are_better():
    for size, time in ((1.0, 1.0), (-1.0, -1.0)):
        page = effect_html(Effect("x", None, Figure(size, None, "B"), Figure(time, None, "ms")))
        assert page.count("qdq-worse" if size > 0 else "qdq-better") == 2


def test_one_estimate_among_measured_figures_makes_an_estimate_and_the_title_says_which():
    size = Figure(8.0, 16.0, "B", measured=True, basis="both files")
    score = Figure(1.0, None, "points", basis="a sweep")
    page = effect_html(Effect("x", score, size, Figure(None), "measured", "accuracy", "No time: it failed."))
    assert "<i>estimated</i>" in page
    assert 'title="x\naccuracy: an estimate, a sweep\nsize: measured, both files\nNo time: it failed."' in page
    assert "time" not in page.partition("</b>")[2]
    measured = effect_html(Effect("x", None, size, state="measured"))
    assert "<i>measured</i>" in measured
    assert "qdq-estimate" not in measured
    assert "<i>measuring …</i>" in effect_html(Effect("x", None, size, state="measuring"))


@pytest.mark.parametrize(
    ("metric", "name"), [("accuracy", "accuracy"), ("sqnr", "SQNR"), ("<b>", "&lt;b&gt;")], ids=str
)
def test_the_metric_is_named_as_people_write_it(metric, name):
    assert f"{name} +1 dB</span>" in effect_html(
        Effect("x", Figure(1.0, None, "dB", measured=True), metric=metric)
    ).replace("≈ ", "")


# ---------------------------------------------------------------------- the present plan


def bench_of(fp32=None, known=None, samples=None, **fields):
    curves = Curves(None if fp32 is None else Scores(0.1, fp32))
    scores = {stage: Scores(0.1, metrics) for stage, metrics in (known or {}).items()}
    usual = {
        "plan": PLAN,
        "explanation": qdq.explain(PLAN, target=PLAN.target),
        "curves": curves,
        "snapshot": Snapshot(scores=scores),
        "scored_samples": samples,
        "latency": None,
        "stage": "planned",
        "stage_note": "",
        "effects": SimpleNamespace(former=("", {})),
    }
    return SimpleNamespace(**{**usual, **fields})


def test_the_plan_is_counted_before_anything_is_scored():
    bench = bench_of(stage_note='not "yet"')
    pairs = len(PLAN.tensors)
    share = f"{100 * bench.explanation.coverage['macs']:.1f} %"
    assert summary_texts(bench) == [
        f"{pairs} Q/DQ pairs",
        "2 of 2 computing layers quantized",
        f"{share} of the work in INT8",
        "planned",
    ]
    page = summary_html(bench)
    assert 'title="not &quot;yet&quot;">planned</span>' in page
    assert "qdq-scores" not in page


def test_a_target_without_rules_has_no_share_of_the_work():
    class Bench(SimpleNamespace):
        @property
        def explanation(self):
            raise qdq.errors.TargetError("No rules are known.")

    bench = Bench(**{key: value for key, value in vars(bench_of()).items() if key != "explanation"})
    assert not [text for text in summary_texts(bench) if "INT8" in text]


def test_shares_are_told_in_percent_with_their_difference_to_the_float_model():
    known = {FINE_TUNED: {"accuracy": 0.9}, CALIBRATED: {"accuracy": 0.875}, CORRECTED: {"accuracy": 0.85}}
    bench = bench_of({"accuracy": 0.875}, known, 400)
    assert summary_texts(bench)[4:] == ["FP32 87.5", "PTQ 87.5 (+0.0)", "corrected 85.0 (-2.5)", "QAT 90.0 (+2.5)"]
    page = summary_html(bench)
    assert '<small>PTQ</small> <b>87.5</b> <i class="qdq-same">+0.0</i>' in page
    assert f'<small>corrected</small> <b>85.0</b> <i class="qdq-worse">{MINUS}2.5</i>' in page
    assert '<small>QAT</small> <b>90.0</b> <i class="qdq-better">+2.5</i>' in page
    assert "accuracy on 400 validation samples: one of them is 0.25 points; 95 % interval " in page
    assert "<small>n</small> <b>=" in page
    assert "400, ± 3.2" in page


def test_a_metric_that_is_no_share_is_told_as_it_is_and_nobody_judges_it():
    bench = bench_of({"mae": 12.34567}, {CALIBRATED: {"mae": 12.5}}, 32)
    assert summary_texts(bench)[4:] == ["FP32 12.35", "PTQ 12.5 (+0.1543)"]
    page = summary_html(bench)
    assert 'title="mae on 32 validation samples"' in page
    assert '<i class="qdq-same">+0.1543</i>' in page
    assert "± " not in page


def test_data_of_unknown_length_have_neither_count_nor_interval():
    page = summary_html(bench_of({"accuracy": 0.5}, {CALIBRATED: {"loss": 1.0}}))
    assert 'title="accuracy on the validation data"><small>FP32</small> <b>50.0</b></span>' in page
    assert "PTQ" not in page  # scored by something else
    assert "n = " not in page


def test_without_scores_of_the_float_model_there_is_nothing_to_compare_with():
    assert "qdq-scores" not in summary_html(bench_of(None, {CALIBRATED: {"accuracy": 0.5}}, 32))


def test_the_speed_is_that_beside_the_float_file():
    report = SimpleNamespace(
        speedup=2.345, total_ms=0.12345, engine="<engine>", interval_name="one round", speedup_interval=(2.1, 2.5)
    )
    bench = bench_of(latency=report)
    assert summary_texts(bench)[-1] == "x2.35, 0.123 ms"
    assert "the plan&#x27;s file in &lt;engine&gt; on this computer" in summary_html(bench)
    assert "one round 2.10 to 2.50" in summary_html(bench)


def test_a_plan_without_scores_shows_those_of_the_plan_before_it_as_such():
    former = {CALIBRATED: Scores(0.1, {"accuracy": 0.875}), FINE_TUNED: Scores(0.1, {"accuracy": 0.9})}
    bench = bench_of({"accuracy": 0.875}, samples=400, effects=SimpleNamespace(former=("toggle <b>", former)))
    assert summary_texts(bench)[4:] == ["FP32 87.5", "PTQ\u00a0before 87.5 (+0.0)", "QAT\u00a0before 90.0 (+2.5)"]
    page = summary_html(bench)
    assert "The present plan is not scored yet. Before &#x27;toggle &lt;b&gt;&#x27;: accuracy on 400" in page
    assert '<span class="qdq-former"' in page
    assert "<small>QAT\u00a0before</small> <b>90.0</b>" in page
    assert page.count("qdq-former") == 2
