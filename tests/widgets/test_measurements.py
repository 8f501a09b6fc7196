"""The bench's measurements: figures that are refused, what a sweep means for the colours, what is left in float."""

import math
from types import SimpleNamespace

import numpy as np
import pytest
from small_benches import tiny_data

import qdq_workbench as qdq
from qdq_widgets import Workbench
from qdq_widgets.errors import BenchError, BenchStoppedError
from qdq_widgets.measurements import COLORINGS
from qdq_widgets.metrics import LATENCY, OUTPUT_SQNR, PARAMETERS, SENSITIVITY, WEIGHT_BYTES, WEIGHT_SQNR, Metric


def test_the_users_own_figures_colour_the_graph(bench):
    bench.set_metric("latency <b>", {"conv": 0.25, "head": 4.0}, "ms", better="low", scale="log")
    bench.color_by("latency <b>")
    colors = bench.view.graph.colors
    assert colors["legend"] == {"title": "latency <b>", "unit": "ms", "scale": "log", "better": "low"}
    names = [node.name for node in bench.graph.nodes]
    assert {n: v for n, v in zip(names, colors["values"], strict=True) if v is not None} == {"conv": 0.25, "head": 4.0}
    assert bench.view.colors.value == "latency <b>"
    bench.view.colors.value = "plan"
    assert bench.coloring == "plan"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("plan", {"conv": 1.0}), "name of its own"),
        ((" ", {"conv": 1.0}), "name of its own"),
        (("mine", {"convv": 1.0}), "Did you mean 'conv'"),
        (("mine", {"conv": float("nan")}), "finite numbers"),
        (("mine", {"conv": "much"}), "finite numbers"),
    ],
)
def test_figures_that_cannot_be_drawn_are_refused(bench, arguments, message):
    with pytest.raises((BenchError, qdq.SpecError), match=message):
        bench.set_metric(*arguments)
    assert set(bench.metrics) == {PARAMETERS, WEIGHT_BYTES}
    with pytest.raises(BenchError, match="can be coloured by"):
        bench.color_by("mine")


def test_layers_are_left_in_float_in_one_step(bench):
    step = bench.leave_in_float(["conv", "head"])
    assert step.label == "leave in float: conv, head"
    assert not bench.plan.for_layer("conv").quantize_weight
    assert not bench.plan.for_layer("head").quantize_input
    bench.undo()
    assert len(bench.spec) == 0
    bench.leave_in_float(["conv"])
    with pytest.raises(BenchError, match="in float already"):
        bench.leave_in_float(["conv", "relu"])
    with pytest.raises(BenchError, match="at least one layer"):
        bench.leave_in_float([])
    with pytest.raises(BenchError, match=r"wb.sensitivity\(\)"):
        bench.leave_in_float(2)


@pytest.mark.parametrize(
    ("arguments", "named", "message"),
    [
        (("mine", {"conv": True}), {}, "finite numbers; leave layers without one out. Received: 'conv': True"),
        (("mine", {"conv": math.inf}), {}, "'conv': inf"),
        (("mine", {"conv": None}), {}, "'conv': None"),
        ((PARAMETERS, {}), {}, "name of its own"),
        (("mine", {}), {"better": "higher"}, "Received: 'higher', 'linear'"),
        (("mine", {}), {"scale": "cubic"}, "Received: '', 'cubic'"),
    ],
)
def test_figures_without_a_meaning_are_refused(bench, arguments, named, message):
    with pytest.raises(BenchError, match=message):
        bench.set_metric(*arguments, **named)
    assert bench.own_metrics == []


def test_numbers_of_numpy_and_calls_of_a_layer_are_figures_too(bench):
    metric = bench.set_metric("mine", {"conv": np.float32(0.5), "head": np.int64(3), "stem": 0})
    assert [(layer, value, type(value)) for layer, value in metric.values.items()] == [
        ("conv", 0.5, float),
        ("head", 3, int),
        ("stem", 0, int),
    ]
    bench.set_metric("mine", {})
    assert bench.metrics["mine"].values == {}


@pytest.mark.parametrize("what", COLORINGS)
def test_every_colouring_is_known_and_told(bench, what):
    events = []
    bench.subscribe(events.append)
    bench.color_by(what)
    assert (bench.coloring, events) == (what, ["colors"])


def test_a_metric_of_the_plans_file_is_kept_as_that_of_an_earlier_plan_once_it_is_drawn(bench):
    layers = (qdq.profiling.LayerLatency("conv", 0.5, 0.5, ("Conv",)),)
    report = SimpleNamespace(layers=layers, baseline=None)
    bench._work.models.remember_latency(bench.plan, report)
    assert bench.metrics[LATENCY].values == {"conv": 0.5}
    bench.toggle("head", "weight")
    assert LATENCY not in bench.metrics
    bench.undo()
    bench.color_by(LATENCY)
    bench.toggle("head", "weight")
    assert bench.is_stale(bench.metrics[LATENCY])
    assert bench.own_metrics == [bench.metrics[LATENCY]]
    bench.color_by(WEIGHT_BYTES)
    assert bench.own_metrics == [bench.metrics[LATENCY]]  # sizes follow from the plan at any time


def test_figures_that_are_taken_over_replace_all_others_and_their_colours(bench):
    bench.set_metric("mine", {"conv": 1.0})
    bench.color_by("mine")
    other = Metric("other", {"head": 2.0})
    bench.take_over_metrics([other], None)
    assert (bench.own_metrics, bench.coloring) == ([other], "precision")
    bench.color_by("other")
    bench.take_over_metrics([other], "a report")
    assert (bench.coloring, bench.sensitivity_report) == ("other", "a report")


# ---------------------------------------------------------------------- sensitivity


def swept(bench, monkeypatch, report, **settings):
    """Run a sweep of the bench that finds `report` at once; return what was asked for."""
    asked = {}

    def sensitivity(model, data, **given):
        asked.update(given, data=data)
        return report

    monkeypatch.setattr(qdq, "sensitivity", sensitivity)
    assert bench.sensitivity(**settings) is report
    return asked


def report_of(values, *, mode="one_on", higher_is_better=True, sites=("input", "weight", "output")):
    entries = tuple(
        qdq.results.SensitivityEntry(layer, value, "dB", 1.0, 0.5, (0,), quantize_weight=True)
        for layer, value in values.items()
    )
    return qdq.results.SensitivityReport("tiny", mode, "sqnr", "dB", higher_is_better, sites, entries, 1.0, 0.5, 8)


@pytest.mark.parametrize(
    ("mode", "higher_is_better", "better"),
    [("one_on", True, "high"), ("one_on", False, "low"), ("one_off", True, "low"), ("one_off", False, "high")],
)
def test_which_end_of_a_sweep_is_better_follows_from_metric_and_mode(
    bench, monkeypatch, mode, higher_is_better, better
):
    report = report_of({"conv": 1.0, "head": 2.0}, mode=mode, higher_is_better=higher_is_better)
    swept(bench, monkeypatch, report, mode=mode)
    metric = bench.metrics[SENSITIVITY]
    assert metric.better == better
    assert metric.ranked()[0][0] == report.ranked()[0].layer


def test_a_sweep_reads_the_layers_that_were_decided_and_leaves_infinite_errors_out(bench, monkeypatch):
    report = report_of({"conv": 1.0, "head": math.inf, "stem": math.nan})
    asked = swept(bench, monkeypatch, report, samples=5)
    assert asked["layers"] == ["stem", "conv", "pool", "head"]
    assert [len(part) for part in asked["data"]] == [5, 5]
    assert (asked["mode"], asked["metric"]) == ("one_on", "sqnr")
    assert bench.metrics[SENSITIVITY].values == {"conv": 1.0}
    assert swept(bench, monkeypatch, report, layers=["head"])["layers"] == ["head"]


def test_what_was_measured_last_comes_last(bench, monkeypatch):
    swept(bench, monkeypatch, report_of({"conv": 1.0}))
    bench.set_metric("mine", {})
    swept(bench, monkeypatch, report_of({"conv": 2.0}))
    assert [metric.name for metric in bench.own_metrics] == ["mine", SENSITIVITY]


@pytest.mark.parametrize(
    ("sites", "inputs", "weight"),
    [
        (("input", "weight", "output"), (), False),
        (("weight",), (0,), False),
        (("input",), (), True),
    ],
    ids=["all", "weights", "inputs"],
)
def test_what_a_sweep_did_not_switch_stays_quantized(bench, monkeypatch, sites, inputs, weight):
    swept(bench, monkeypatch, report_of({"conv": 1.0, "head": 9.0}, sites=sites))
    step = bench.leave_in_float(np.int64(1))
    assert step.label == "leave the 1 most sensitive in float: conv"
    decision = bench.plan.decisions["conv"]
    assert (decision.input_indices, decision.quantize_weight) == (inputs, weight)
    assert bench.plan.decisions["head"].quantize_weight


def test_the_label_of_many_layers_is_cut(bench):
    names = tuple(node.name for node in bench.graph.nodes if node.name != "image")
    step = bench.leave_in_float(names * 50)  # each once
    assert step.label == f"leave in float: {', '.join(names)}"


# ---------------------------------------------------------------------- signal to noise


def test_both_ratios_are_of_one_plan_and_a_stop_leaves_those_of_before(model, monkeypatch):
    bench = Workbench(model, calibration_data=tiny_data(4)[0])
    bench._work.models.put(bench.plan, "a model", "calibrated")
    stopping = []

    def of_outputs(q_model, data, job, about):
        if stopping:
            job.stop()
        return Metric(OUTPUT_SQNR, {"conv": len(data)}, about=about)

    monkeypatch.setattr("qdq_widgets.metrics.weight_sqnr", lambda _, about: Metric(WEIGHT_SQNR, {}, about=about))
    monkeypatch.setattr("qdq_widgets.metrics.output_sqnr", of_outputs)
    assert bench.measure_sqnr() == (Metric(WEIGHT_SQNR, {}), Metric(OUTPUT_SQNR, {"conv": 4}))
    bench.set_metric("mine", {})
    bench.measure_sqnr()
    assert [metric.name for metric in bench.own_metrics] == ["mine", WEIGHT_SQNR, OUTPUT_SQNR]
    assert not any(map(bench.is_stale, bench.own_metrics))
    stopping.append(True)
    before = bench.own_metrics
    with pytest.raises(BenchStoppedError, match="Stopped: SQNR"):
        bench.measure_sqnr()
    assert bench.own_metrics == before
    bench.toggle("conv", "weight")
    assert [bench.is_stale(metric) for metric in bench.own_metrics] == [False, True, True]
