"""Measured speed in the bench: method, pane, bar, colours, variants and folder tell the same report."""

import dataclasses
import re

import pytest
from small_benches import stopped_when, tiny_data

import qdq_workbench as qdq
from qdq_widgets import Workbench
from qdq_widgets.curves import Curves, Scores, interval
from qdq_widgets.header import summary_html, summary_texts
from qdq_widgets.metrics import LATENCY
from qdq_widgets.panes.speed import SpeedPane, edges_html, latency_tables, losses_html, losses_of, note_html
from qdq_widgets.panes.variants import variants_table
from qdq_workbench.errors import QDQError


@pytest.fixture(scope="module")
def measured(calibrated):
    calibrated.measure_speed(threads=1, rounds=1)
    return calibrated


def chips(bench):
    return re.findall(r">([^<]+)<", summary_html(bench))


def test_the_report_is_about_the_plan_and_the_float_file(measured):
    report = measured.latency
    assert report.path.name == "plan.onnx"
    assert report.baseline.path.name == "float.onnx"
    assert {entry.layer for entry in report.layers} <= set(measured.graph.layers)
    assert f"x{report.speedup:.2f}, {report.total_ms:.3g} ms" in chips(measured)


def test_times_colour_the_graph_until_the_plan_changes(measured):
    assert measured.metrics[LATENCY].values == {entry.layer: entry.ms for entry in measured.latency.layers}
    measured.color_by(LATENCY)
    assert not measured.is_stale(measured.metrics[LATENCY])
    measured.toggle("conv", "weight")
    try:
        assert measured.latency is None
        assert measured.is_stale(measured.metrics[LATENCY])
        assert not any(chip.startswith("x") for chip in chips(measured))
    finally:
        measured.undo()
    assert measured.latency is not None
    assert not measured.is_stale(measured.metrics[LATENCY])


def test_a_plan_for_another_runtime_is_remarked_on(measured):
    report = dataclasses.replace(measured.latency, target="tensorrt")
    assert "plan.onnx was exported for tensorrt" in note_html(report)
    assert "exported for" not in note_html(dataclasses.replace(report, target="onnxruntime"))


def test_the_pane_measures_and_shows(measured):
    measured.view.work.open(SpeedPane)
    pane = measured.view.pane(SpeedPane)
    pane.threads.value, pane.rounds.value, pane.batch.value = 1, 2, 3
    before = measured.latency
    pane.run.click()
    assert measured.jobs.wait(120)
    assert pane.errors.message == ""
    report = measured.latency
    assert report is not before
    assert (report.batch, report.threads) == (3, 1)
    assert pane._note.value.startswith(note_html(report))
    assert f"{report.speedup:.2f} times as fast" in pane._note.value
    figure, tables = pane._figures.children
    assert len(figure.children[0].data) == 2
    assert tables.value == latency_tables(report)
    for gain in report.gains:
        assert f"{gain.gain_ms:+.4f}" in tables.value
    pane.color.click()
    assert measured.coloring == LATENCY
    assert f"x{report.speedup:.2f}" in measured.view.summary.value


def test_a_job_that_is_stopped_keeps_the_rounds_until_then(measured):
    reached = []

    def is_measuring(job):
        if "rounds" in job.text:
            reached.append(job.fraction)
        return bool(reached)

    with stopped_when(measured, is_measuring):
        assert measured.measure_speed(threads=1, rounds=500).runs > 0
    assert max(reached) < 0.1  # of the rounds


def test_variants_have_times_and_the_folder_keeps_them(bench, tmp_path):
    bench.calibrate()
    bench.keep_variant("first")
    (variant,) = bench.measure_variants()
    report = variant.latency
    table = variants_table(bench.variants, bench.curves)
    assert f"{report.total_ms:.3f} ms, x{report.speedup:.2f}" in table
    assert f"{report.baseline.total_ms:.3f} ms" in table
    assert bench.latency is report
    bench.save(tmp_path / "bench")
    loaded = Workbench.load(tmp_path / "bench", train_data=tiny_data(), validation_data=tiny_data(32))
    assert loaded.latency == report
    assert loaded.variants[0].latency == report
    assert loaded.measure_variants()[0].latency == report


def test_without_ranges_it_says_what_is_missing(model):
    with pytest.raises(QDQError, match=r"calibrat"):
        Workbench(model).measure_speed()


def test_the_bar_shows_scores_with_what_one_sample_is_worth(measured):
    scores = {
        stage: Scores(0.1, {"accuracy": value}) for stage, value in (("calibrated", 0.75), ("fine-tuned", 0.96875))
    }
    shown = Shown(measured, Curves(Scores(0.1, {"accuracy": 0.9375}), scores["calibrated"]), scores)
    assert summary_texts(shown)[-4:-1] == ["FP32 93.8", "PTQ 75.0 (-18.8)", "QAT 96.9 (+3.1)"]
    low, high = interval(0.75, 32)
    assert f"32 validation samples: one of them is 3.1 points; 95 % interval {100 * low:.1f} to {100 * high:.1f}" in (
        summary_html(shown)
    )
    html = summary_html(shown)
    assert f"<b>= 32, ± {50 * (interval(0.9375, 32)[1] - interval(0.9375, 32)[0]):.1f}</b>" in html
    assert '<i class="qdq-worse">\u221218.8</i>' in html
    assert '<i class="qdq-better">+3.1</i>' in html
    errors = Curves(Scores(2.5, {"mae": 2.5}), None)
    shown = Shown(measured, errors, {"calibrated": Scores(3.0, {"mae": 3.0})})
    assert summary_texts(shown)[-3:-1] == ["FP32 2.5", "PTQ 3 (+0.5)"]
    assert "interval" not in summary_html(shown).split("FP32")[0].rsplit("title=", 1)[1]
    assert '<i class="qdq-same">+0.5</i>' in summary_html(shown)  # nobody knows whether more is better


class Shown:
    """A bench with other scores."""

    def __init__(self, bench, curves, scores):
        self._bench, self.curves = bench, curves
        self.snapshot = bench.snapshot.replace(scores=scores)

    def __getattr__(self, name):
        return getattr(self._bench, name)


@pytest.mark.parametrize(("share", "count"), [(0.0, 10), (1.0, 10), (0.5, 1), (0.976, 359)])
def test_the_interval_holds_the_share_and_stays_within_its_ends(share, count):
    low, high = interval(share, count)
    assert 0.0 <= low <= share <= high <= 1.0
    # Both ends are where the share is 1.96 standard deviations away: the definition of Wilson's interval.
    for end in (low, high):
        if 0.0 < end < 1.0:
            assert abs(share - end) / (end * (1 - end) / count) ** 0.5 == pytest.approx(1.96)


def test_what_loses_is_named_and_left_in_float_by_a_click(measured):
    report, plan = measured.latency, qdq.plan_placement(measured.model, target="onnxruntime")
    slow = tuple(dataclasses.replace(entry, ms=entry.ms + 5.0 * (entry.layer == "head")) for entry in report.layers)
    of_plan = {"total_ms": report.total_ms + 5.0, "noise": 0.01, "target": plan.target}
    worse = dataclasses.replace(report, layers=slow, **of_plan)
    (loss,), _ = losses_of(plan, worse)
    assert "head" in loss.layers
    shown = losses_html([loss])
    assert "These cost more than they save" in shown
    assert f"{loss.gain_ms:+.4f}" in shown
    assert losses_html(()) == edges_html(()) == ""
    edge = qdq.results.IslandEdge(("first<b>", "relu"), "first", 0.5, 0.2, 0.01, 0.04, is_loss=True)
    for cell in ("first&lt;b&gt; + relu", "0.5000", "0.2000", "+0.0300"):
        assert cell in edges_html([edge])
    measured.view.work.open(SpeedPane)
    pane = measured.view.pane(SpeedPane)
    pane._drawn, pane._losing = worse, list(loss.layers)
    pane.leave.click()
    try:
        assert pane.errors.message == ""
        assert not {p.layer for p in measured.plan.placements} & set(loss.layers)
        assert pane.leave.layout.display == "none"  # the new plan has not been measured
    finally:
        measured.undo()


def test_of_another_runtime_nothing_is_said_to_lose(measured):
    plan = qdq.plan_placement(measured.model, target="tensorrt")
    assert losses_of(plan, measured.latency) == ((), ())
