"""Histograms and figures per layer: sizes, signal to noise, the user's own; and colours that follow them."""

import json

import keras
import numpy as np
import pytest
from small_benches import tiny_data

import qdq_workbench as qdq
from qdq_widgets import Workbench
from qdq_widgets.errors import BenchError
from qdq_widgets.histograms import known_tensors
from qdq_widgets.metrics import OUTPUT_SQNR, PARAMETERS, WEIGHT_BYTES, WEIGHT_SQNR, _finite, _Sums


def test_the_histogram_counts_every_value_once(calibrated):
    histogram = calibrated.histogram("image")
    assert sum(histogram.counts) == 32 * 6 * 6 * 2
    assert (histogram.low, histogram.high) == calibrated.calibration.ranges["image"]
    assert histogram.outside == 0.0
    assert histogram.grid == "int8"
    worst = max(-histogram.low, histogram.high)
    assert histogram.clips == pytest.approx((-worst * 128 / 127, worst), rel=1e-6)


def test_a_tensor_without_a_pair_and_a_weight_have_histograms_too(calibrated):
    free, kernel, bias = calibrated.histograms(["norm", "conv/kernel", "conv/bias"])
    assert (free.clips, free.grid, free.outside) == (None, "", 0.0)
    assert sum(free.counts) == 32 * 6 * 6 * 3
    values = calibrated.model.get_layer("conv").kernel.numpy()
    assert sum(kernel.counts) == values.size
    assert (kernel.kind, kernel.outside, kernel.grid) == ("weight", 0.0, "int8/axis 3, 3 scales")
    assert kernel.clips == pytest.approx((-np.abs(values).max(), np.abs(values).max()), rel=1e-6)
    assert bias.clips is None
    with pytest.raises(BenchError, match="no tensor of that name"):
        calibrated.histogram("nrom")
    with pytest.raises(BenchError, match="at least one"):
        calibrated.histograms([])


def test_tensors_that_share_one_scale_are_counted_apart():
    image = keras.Input((6, 6, 2), name="image")
    joined = keras.layers.Concatenate(name="joined")(
        [keras.layers.Conv2D(2, 3, name=name)(image) for name in ("left", "right")]
    )
    model = keras.Model(image, keras.layers.Conv2D(2, 1, name="last")(joined))
    bench = Workbench(model, calibration_data=tiny_data()[0], target="onnxruntime")
    bench.add_entry("joined")
    bench.calibrate("percentile", percentile=90.0)
    groups = {tensor.name: tensor.scale_group for tensor in bench.plan.tensors if tensor.scale_group}
    assert len(groups) > 1
    for found in bench.histograms(list(groups)):
        assert "one scale with" in found.grid or groups[found.tensor] == found.tensor
    clipped = bench.histogram("image")
    assert 0.05 < clipped.outside < 0.25


def test_weights_need_neither_data_nor_ranges_and_activations_say_what_they_need(model):
    bench = Workbench(model)
    assert bench.histogram("head/kernel").clips is not None
    with pytest.raises(BenchError, match="calibration_data="):
        bench.histogram("image")


def test_known_tensors_are_all_that_hold_real_numbers_quantized_ones_first(bench):
    known = known_tensors(bench.plan)
    assert {"image", "relu", "norm", "add", "conv/kernel", "conv/bias", "norm/gamma"} <= set(known)
    kinds = list(known.values())
    assert "float" not in "".join(kinds[: len(bench.plan.tensors)])
    assert known["conv/kernel"] == "weight, int8/axis 3"


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


def test_metrics_go_through_json(bench):
    from qdq_widgets.metrics import metric_from_dict

    metric = bench.set_metric("mine", {"conv": np.float32(1.5)}, "ms", better="low")
    assert metric_from_dict(json.loads(json.dumps(metric.to_dict()))) == metric
    assert metric.ranked() == [("conv", 1.5)]


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
