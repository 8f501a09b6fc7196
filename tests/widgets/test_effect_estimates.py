"""Estimates of what a change of the plan does, from a sweep, from a profile, and only where they cover the change."""

import dataclasses
import math
import pathlib

import numpy as np
import pytest
from mock_graphs import chain

import qdq_workbench as qdq
from qdq_widgets.effect_estimates import estimated_score, estimated_size, estimated_time

GRAPH = chain(
    ("Conv2D", "stem"), ("ReLU", "relu"), ("Conv2D", "conv"), ("BatchNormalization", "norm"), ("Dense", "head")
)


def planned(spec=None):
    return qdq.plan_placement(GRAPH, "full", spec or qdq.QuantizationSpec(), target="onnxruntime")


def plan_without(*layers):
    spec = qdq.QuantizationSpec()
    for layer in layers:
        spec.add(layer, quantize_input=False, quantize_weight=False)
    return planned(spec)


BOTH, LESS = plan_without(), plan_without("conv")


def report_of(metric, mode, values, quantized, unit="", float_value=1.0, **fields):
    entries = tuple(
        qdq.results.SensitivityEntry(layer, value, unit, float_value, quantized, (0,), quantize_weight=True)
        for layer, value in values.items()
    )
    return qdq.results.SensitivityReport(
        "net", mode, metric, unit, metric != "mse", ("input", "weight"), entries, float_value, quantized, 32, **fields
    )


# ---------------------------------------------------------------------- size


def test_the_size_is_that_of_the_weights_under_both_plans():
    figure = estimated_size(BOTH, LESS)
    assert figure.change == 3 * 3 * 3 * 4 * 4  # three bytes more for each of the weights
    assert estimated_size(LESS, BOTH).change == -figure.change
    assert (figure.unit, figure.measured, figure.value) == ("B", False, None)


# ---------------------------------------------------------------------- score


def test_a_score_is_estimated_from_the_harm_of_the_layers_alone():
    one_on = report_of("accuracy", "one_on", {"conv": 0.97, "stem": 0.9}, 0.88)
    assert estimated_score(BOTH, LESS, one_on).change == pytest.approx(3.0)
    assert estimated_score(LESS, BOTH, one_on).change == pytest.approx(-3.0)
    assert estimated_score(BOTH, plan_without("conv", "stem"), one_on).change == pytest.approx(13.0)
    one_off = report_of("mse", "one_off", {"conv": 0.3}, 0.5)
    assert estimated_score(BOTH, LESS, one_off).change == pytest.approx(-0.2)


def test_noise_powers_add_up():
    one_on = report_of("sqnr", "one_on", {"conv": 23.0, "stem": 23.0}, 20.0, "dB")
    figure = estimated_score(BOTH, LESS, one_on)
    assert figure.change == pytest.approx(3.0, abs=0.05)  # half of the noise is gone
    assert figure.unit == "dB"
    assert figure.basis == "the last sensitivity sweep (sqnr, 32 samples), layers taken as independent"
    # All noise but its own is half of the whole: the other half is its own.
    one_off = report_of("sqnr", "one_off", {"conv": 20.0 + 10 * math.log10(2)}, 20.0, "dB")
    assert estimated_score(BOTH, LESS, one_off).change == pytest.approx(10 * math.log10(2))
    assert estimated_score(LESS, BOTH, one_off).change == pytest.approx(-10 * math.log10(1.5))


def test_a_layer_without_which_the_noise_is_higher_adds_none():
    report = report_of("sqnr", "one_off", {"conv": 19.0}, 20.0, "dB")
    assert estimated_score(BOTH, LESS, report).change == 0.0


@pytest.mark.parametrize(("mode", "value"), [("one_on", 20.0), ("one_on", 15.0), ("one_off", math.inf)])
def test_no_ratio_is_estimated_where_no_noise_would_be_left(mode, value):
    report = report_of("sqnr", mode, {"conv": value}, 20.0, "dB")
    assert estimated_score(BOTH, LESS, report) is None


def test_nothing_is_estimated_from_an_error_that_is_infinite_or_no_number():
    for mode, value in (("one_on", -np.inf), ("one_on", np.nan), ("one_off", np.nan)):
        assert estimated_score(BOTH, LESS, report_of("sqnr", mode, {"conv": value}, 20.0, "dB")) is None
    assert estimated_score(BOTH, LESS, report_of("mse", "one_on", {"conv": np.inf}, 0.5)) is None


@pytest.mark.parametrize("name", ["accuracy", "sqnr"])
def test_a_metric_of_the_users_own_has_its_unit_and_no_noise_whatever_its_name_is(name):
    report = report_of(name, "one_on", {"conv": 0.75}, 0.5, "marks", own_metric=True)
    figure = estimated_score(BOTH, LESS, report)
    assert (figure.change, figure.unit) == (0.25, "marks")


def test_no_score_is_said_without_a_basis():
    assert estimated_score(BOTH, LESS, None) is None
    assert estimated_score(BOTH, LESS, report_of("accuracy", "one_on", {"stem": 0.9}, 0.8)) is None
    assert estimated_score(BOTH, BOTH, report_of("accuracy", "one_on", {"conv": 0.9}, 0.8)) is None


def test_pairs_of_the_target_alone_need_no_entry_of_a_sweep():
    less = plan_without("stem")
    assert {(item.layer, item.author) for item in BOTH.diff(less).removed} >= {("relu", "target")}
    assert estimated_score(BOTH, less, report_of("mse", "one_on", {"stem": 1.25}, 2.0)).change == -0.25


def test_a_layer_that_is_partly_quantized_was_not_swept():
    report = report_of("accuracy", "one_on", {"conv": 0.9, "head": 0.9}, 0.8)
    partly = {}
    for site in ("input", "weight"):
        spec = qdq.QuantizationSpec()
        spec.add("conv", **{f"quantize_{site}": False})
        partly[site] = planned(spec)
        spec.add("head", quantize_input=False, quantize_weight=False)
        partly[site, "float head"] = planned(spec)
    for plan in partly.values():
        assert estimated_score(BOTH, plan, report) is None
        assert estimated_score(plan, LESS, report) is None
    # The head alone is known, and the convolution may give other numbers.
    assert estimated_score(partly["input"], partly["weight", "float head"], report) is None
    assert estimated_score(partly["input"], partly["input", "float head"], report).change == pytest.approx(10.0)


def test_another_grid_of_a_swept_layer_is_no_change_of_what_was_swept():
    spec = qdq.QuantizationSpec()
    spec.add("conv", quantize_config=qdq.LayerQuantizeConfig(weight={"num_bits": 4}))
    assert estimated_score(BOTH, planned(spec), report_of("accuracy", "one_on", {"conv": 0.9}, 0.8)) is None


@pytest.mark.parametrize("site", ["input", "weight"])
def test_a_sweep_of_some_sites_tells_of_those_alone(site):
    report = dataclasses.replace(report_of("accuracy", "one_on", {"conv": 0.9}, 0.8), sites=(site,))
    spec = qdq.QuantizationSpec()
    spec.add("conv", **{f"quantize_{site}": False})
    less = planned(spec)
    assert estimated_score(BOTH, less, report).change == pytest.approx(10.0)
    assert estimated_score(less, BOTH, report).change == pytest.approx(-10.0)
    assert estimated_score(BOTH, LESS, report) is None  # of the other site nothing is known
    assert estimated_score(less, LESS, report) is None


def test_a_pair_that_the_target_adds_to_swept_weights_follows_from_them():
    graph = chain(("Conv2D", "conv"), ("ReLU", "relu"), ("Conv2D", "last"))
    spec = qdq.QuantizationSpec()
    spec.add("last", quantize_weight=False)
    both, less = (
        qdq.plan_placement(graph, "full", each, target="onnxruntime") for each in (qdq.QuantizationSpec(), spec)
    )
    assert ("last", "output", "target") in {(p.layer, p.site, p.author) for p in both.diff(less).removed}
    report = dataclasses.replace(report_of("accuracy", "one_on", {"last": 0.9}, 0.8), sites=("weight",))
    assert estimated_score(both, less, report).change == pytest.approx(10.0)


# ---------------------------------------------------------------------- time


def entry(name, ms, *kernels, fused=()):
    return qdq.profiling.LayerLatency(name, ms, 0.5, kernels, fused)


def profile(layers, baseline=None):
    return qdq.results.LatencyReport(
        pathlib.Path("plan.onnx"), layers, (), 1.0, {50: 1.0}, 3, 1, None, "1", 0.0, baseline, 1.0, (0.9, 1.1)
    )


FLOATS = profile((entry("conv", 0.5, "Conv"), entry("stem", 0.4, "Conv"), entry("head", 0.2, "MatMul")))
FOUND = profile(
    (entry("conv", 0.2, "QLinearConv"), entry("stem", 0.3, "Conv"), entry("head", 0.1, "MatMulIntegerToFloat")), FLOATS
)


def test_the_time_is_estimated_from_the_gains_of_a_profile():
    to_float = estimated_time({"conv": "int8"}, {"conv": "float"}, FOUND)
    assert to_float.change == pytest.approx(0.3)
    assert (to_float.unit, to_float.basis) == ("ms", "the gains of layers in the last profile (plan.onnx)")
    assert estimated_time({"conv": "float"}, {"conv": "int8"}, FOUND).change == pytest.approx(-0.3)
    both = estimated_time({"conv": "int8", "head": "float"}, {"conv": "float", "head": "int8"}, FOUND)
    assert both.change == pytest.approx(0.3 - 0.1)


def test_no_time_is_said_without_a_float_file_beside_it():
    assert estimated_time({"conv": "int8"}, {"conv": "float"}, None) is None
    assert estimated_time({"conv": "int8"}, {"conv": "float"}, FLOATS) is None


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({"stem": "float"}, {"stem": "int8"}),  # in float in the profile too
        ({"conv": "int8"}, {"conv": "partial"}),
        ({"conv": "partial"}, {"conv": "float"}),
        ({"conv": "int8", "stem": "int8"}, {"conv": "float", "stem": "float"}),  # one of two
        ({"norm": "int8"}, {"norm": "float"}),  # has no time of its own, and no other layer changes
    ],
)
def test_no_time_is_said_of_layers_that_the_profile_does_not_have_in_both_states(before, after):
    assert estimated_time(before, after, FOUND) is None


def test_layers_without_a_time_of_their_own_go_with_those_that_have_one():
    before, after = {"conv": "int8", "norm": "int8"}, {"conv": "float", "norm": "float"}
    assert estimated_time(before, after, FOUND).change == pytest.approx(0.3)


def test_a_change_of_no_layer_costs_no_time():
    assert estimated_time({"conv": "int8"}, {"conv": "int8", "new": "float"}, FOUND).change == 0.0


@pytest.mark.parametrize("kernels", [("QuantizeLinear",), ("QLinearConv", "Conv"), ("Conv",)])
def test_a_layer_is_on_integers_where_all_its_kernels_are(kernels):
    found = profile((entry("conv", 0.2, *kernels),), FLOATS)
    assert estimated_time({"conv": "int8"}, {"conv": "float"}, found) is None


def test_the_gain_of_layers_in_one_kernel_counts_once_and_where_they_change_alike():
    found = profile((entry("conv", 0.1, "QLinearConv", fused=("relu",)),), FLOATS)
    before = {"conv": "int8", "relu": "int8"}
    assert estimated_time(before, {"conv": "float", "relu": "float"}, found).change == pytest.approx(0.4)
    assert estimated_time({**before, "relu": "float"}, {"conv": "float", "relu": "int8"}, found) is None
    assert estimated_time(before, {"conv": "float", "relu": "int8"}, found).change == pytest.approx(0.4)
