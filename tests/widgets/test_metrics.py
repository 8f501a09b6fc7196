"""Figures per layer: sizes, signal to noise, and their way into files and reports."""

import json

import numpy as np
import pytest

import qdq_workbench as qdq
from qdq_widgets.metrics import OUTPUT_SQNR, PARAMETERS, WEIGHT_BYTES, WEIGHT_SQNR, _finite, _Sums


def test_sizes_follow_the_plan(bench):
    sizes = bench.metrics[WEIGHT_BYTES].values
    kernel, bias = 3 * 3 * 3 * 3, 3
    assert bench.metrics[PARAMETERS].values["conv"] == kernel + bias
    assert sizes["conv"] == kernel + 4 * bias
    bench.toggle("conv", "weight")
    assert bench.metrics[WEIGHT_BYTES].values["conv"] == 4 * (kernel + bias)
    assert "relu" not in sizes


def test_signal_to_noise_of_weights_and_outputs(calibrated):
    weights, outputs = calibrated.measure_sqnr()
    assert set(weights.values) == {"stem", "conv", "head"}
    assert all(35 < value < 60 for value in weights.values.values())
    kernel = calibrated.model.get_layer("conv").kernel.numpy().astype(np.float64)
    rounded = qdq.integer_weights(calibrated.q_model)["conv/kernel"].dequantize()
    expected = 10 * np.log10(np.sum(kernel**2) / np.sum((kernel - rounded) ** 2))
    assert weights.values["conv"] == pytest.approx(expected, rel=1e-6)
    assert {"stem", "conv", "add", "head"} <= set(outputs.values)
    assert "image" not in outputs.values  # exact: nothing was rounded before it
    assert all(15 < value < 70 for value in outputs.values.values())
    assert not calibrated.is_stale(outputs)
    calibrated.toggle("conv", "input")
    assert calibrated.is_stale(calibrated.metrics[OUTPUT_SQNR])
    calibrated.undo()
    assert not calibrated.is_stale(calibrated.metrics[WEIGHT_SQNR])


def test_metrics_go_through_json(bench):
    from qdq_widgets.metrics import metric_from_dict

    metric = bench.set_metric("mine", {"conv": np.float32(1.5)}, "ms", better="low")
    assert metric_from_dict(json.loads(json.dumps(metric.to_dict()))) == metric
    assert metric.ranked() == [("conv", 1.5)]


def test_the_report_ranks_every_figure_and_takes_no_name_for_markup(bench, tmp_path):
    bench.set_metric("<i>mine</i>", {"conv": 1.5, "head": 0.5}, "ms", better="low")
    page = bench.report(tmp_path / "report.html").read_text(encoding="utf-8")
    assert "<summary>&lt;i&gt;mine&lt;/i&gt; (2)</summary>" in page
    assert page.index("1.5 ms") < page.index("0.5 ms")


def test_a_layer_of_infinite_error_has_no_ratio():
    sums = {"sound": _Sums(), "broken": _Sums()}
    sums["sound"].add(np.array([10.0]), np.array([9.0]))
    sums["broken"].add(np.array([10.0]), np.array([-np.inf]))
    assert _finite(sums) == {"sound": pytest.approx(20.0)}
