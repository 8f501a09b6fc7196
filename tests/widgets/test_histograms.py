"""Histograms of tensors: what can be counted, the grid that cuts the values off, and how many values are read."""

from types import SimpleNamespace

import keras
import numpy as np
import pytest
from mock_graphs import GraphMaker, chain
from small_benches import tiny_data

import qdq_workbench as qdq
from qdq_widgets import Workbench
from qdq_widgets.background import Job
from qdq_widgets.errors import BenchError
from qdq_widgets.histograms import SAMPLES, count_values, known_tensors, tensors_of_layer

IMAGES = np.zeros((SAMPLES, 8, 8, 4), "float32")


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


def test_a_layer_has_the_tensors_that_hold_real_numbers_once():
    maker = GraphMaker()
    maker.add("NotEqual", "mask", "image", dtype="bool")
    maker.add("Conv2D", "conv", "image")
    maker.add("Add", "twice", "conv", "conv", "mask")
    plan = qdq.plan_placement(maker.graph("twice"))
    assert tensors_of_layer(plan, plan.graph.node("twice")) == ["conv", "twice"]
    assert tensors_of_layer(plan, plan.graph.node("conv")) == ["image", "conv/kernel", "conv/bias", "conv"]
    assert tensors_of_layer(plan, plan.graph.node("mask")) == ["image"]


# ---------------------------------------------------------------------- the grids of weights and activations


def codes_of(scale, zero_point=0, axis=None, block_size=None):
    scale = np.asarray(scale, "float32")
    return SimpleNamespace(
        scale=scale, zero_point=np.full(scale.shape, zero_point, "int8"), axis=axis, block_size=block_size
    )


class HeldModel(SimpleNamespace):
    """What `count_values` reads of a quantized model, with weights, codes, batches and ranges that a test gives it."""

    @classmethod
    def of(cls, monkeypatch, *, weights=None, codes=None, batches=(), pairs=None, plan=None, **grid):
        spec = qdq.QuantizationSpec()
        spec.add("conv", quantize_config=qdq.LayerQuantizeConfig(weight=grid) if grid else None)
        plan = plan or qdq.plan_placement(chain(("Conv2D", "conv"), ("ReLU", "relu")), quantization_spec=spec)
        monkeypatch.setattr(qdq, "weight_values", lambda _: weights or {})
        monkeypatch.setattr(qdq, "integer_weights", lambda _: codes or {})
        monkeypatch.setattr(qdq, "tensor_values", lambda *_, **__: (SimpleNamespace(float=batch) for batch in batches))
        return cls(plan=plan, activation_ranges=lambda: pairs or {})

    def count(self, *names, ranges=None, bins=4):
        return count_values(self, ranges or {}, lambda: IMAGES, Job("histogram", lambda _: None), names, bins)


def test_a_weight_is_cut_off_half_a_step_beyond_the_ends_of_its_grid(monkeypatch):
    values = np.array([-1.28, 1.27, 1.2749, 1.276, -1.2849, -1.286], "float32")  # the grid has 255 steps of 0.01
    codes = {"conv/kernel": codes_of(0.01)}
    model = HeldModel.of(
        monkeypatch, weights={"conv/kernel": values}, codes=codes, num_bits=8, per_axis=False, narrow_range=False
    )
    (found,) = model.count("conv/kernel")
    assert found.outside == pytest.approx(2 / 6)
    assert found.clips == pytest.approx((-1.28, 1.27), rel=1e-6)
    assert (found.low, found.high) == pytest.approx((-1.286, 1.276))
    assert (found.grid, found.kind) == ("int8", "weight")


@pytest.mark.parametrize("axis", [1, -1])
def test_every_channel_has_its_own_grid(monkeypatch, axis):
    values = np.array([[1.0, 100.0], [-2.0, -100.0]], "float32")
    codes = {"conv/kernel": codes_of([0.01, 1.0], axis=axis)}
    model = HeldModel.of(monkeypatch, weights={"conv/kernel": values}, codes=codes)
    (found,) = model.count("conv/kernel")
    assert found.outside == 0.25  # -2 is beyond 127 steps of 0.01
    assert found.clips == pytest.approx((-127.0, 127.0))
    assert found.grid.endswith(", 2 scales")


def test_the_last_block_may_be_shorter_than_the_others(monkeypatch):
    values = np.array([[1.0], [1.0], [50.0], [50.0], [2.0]], "float32")
    codes = {"conv/kernel": codes_of([[0.01], [1.0], [0.01]], axis=0, block_size=2)}
    model = HeldModel.of(monkeypatch, weights={"conv/kernel": values}, codes=codes)
    (found,) = model.count("conv/kernel")
    assert found.outside == pytest.approx(1 / 5)  # the last one alone: its block has the small scale
    assert found.grid.endswith(", 3 scales")


def test_a_zero_point_at_the_end_of_the_integers_overflows_nothing(monkeypatch):
    values = np.array([0.0, 2.5], "float32")
    model = HeldModel.of(
        monkeypatch,
        weights={"conv/kernel": values},
        codes={"conv/kernel": codes_of(0.01, zero_point=-128)},
        symmetric=False,
        narrow_range=False,
        per_axis=False,
    )
    (found,) = model.count("conv/kernel")
    assert found.clips == pytest.approx((0.0, 2.55))
    assert found.outside == 0.0


def test_a_weight_that_stays_in_float_has_no_grid(monkeypatch):
    values = {name: np.array([1.0, 2.0], "float32") for name in ("conv/kernel", "conv/bias")}
    model = HeldModel.of(monkeypatch, weights=values, codes={"conv/kernel": values["conv/kernel"]})
    for found in model.count("conv/kernel", "conv/bias"):
        assert (found.clips, found.grid, found.outside, found.low, found.high) == (None, "", 0.0, 1.0, 2.0)


def test_the_range_of_an_activation_is_that_of_its_pair_else_of_the_calibration_else_of_its_values(monkeypatch):
    values = np.array([-3.0, 0.0, 1.27, 1.274, 1.28], "float32")
    batches = [{"image": values, "relu": values, "conv": values}]
    model = HeldModel.of(monkeypatch, batches=batches, pairs={"image": (-1.27, 1.27)})
    image, relu, conv = model.count("image", "relu", "conv", ranges={"image": (-9.0, 9.0), "relu": (0.0, 2.0)})
    assert (image.low, image.high, image.grid) == (-1.27, 1.27, "int8")
    assert image.clips == pytest.approx((-1.28, 1.27))
    assert image.outside == 0.4  # -3 and 1.28: the last step reaches to 1.275
    assert (relu.low, relu.high, relu.clips, relu.grid, relu.outside) == (0.0, 2.0, None, "", 0.0)
    assert (conv.low, conv.high) == (-3.0, pytest.approx(1.28))


def test_of_several_pairs_on_a_tensor_the_first_one_is_shown(monkeypatch):
    maker = GraphMaker()
    maker.add("Conv2D", "one", "image")
    maker.add("Conv2D", "two", "image")
    spec = qdq.QuantizationSpec()
    spec.add("two", quantize_config=qdq.LayerQuantizeConfig(activation={"num_bits": 4}))
    plan = qdq.plan_placement(maker.graph("one", "two"), quantization_spec=spec)
    pairs = {"image": (-1.0, 1.0), "image@2": (-2.0, 2.0)}
    assert {tensor.name for tensor in plan.tensors} > set(pairs)
    model = HeldModel.of(monkeypatch, batches=[{"image": np.ones(4)}], pairs=pairs, plan=plan)
    (found,) = model.count("image")
    assert (found.grid, found.high) == ("int8", 1.0)
    assert known_tensors(plan)["image"] == "activation, int8"


def test_histograms_come_in_the_order_of_the_names(monkeypatch):
    values = np.arange(4.0)
    model = HeldModel.of(
        monkeypatch, weights={"conv/bias": values}, batches=[{"image": values, "conv": values}], pairs={}
    )
    found = model.count("conv", "conv/bias", "image", bins=2)
    assert [(one.tensor, one.kind) for one in found] == [
        ("conv", "activation"),
        ("conv/bias", "weight"),
        ("image", "activation"),
    ]
    assert (found[0].counts, found[0].edges) == ((2, 2), (0.0, 1.5, 3.0))


def test_data_are_read_for_activations_alone_and_an_unknown_name_reads_nothing(monkeypatch):
    model = HeldModel.of(monkeypatch, weights={"conv/bias": np.zeros(4)})
    job = Job("histogram", lambda _: None)
    assert count_values(model, {}, pytest.fail, job, ["conv/bias"])
    with pytest.raises(BenchError, match=r"no tensor of that name to count. Received: tensor='convv'"):
        count_values(model, {}, pytest.fail, job, ["conv", "convv"])


@pytest.mark.parametrize(("most", "samples"), [(10**9, SAMPLES), (8 * 8 * 4 * 5, 5), (8 * 8 * 4 * 5 - 1, 4), (1, 1)])
def test_fewer_samples_of_large_tensors_are_read(monkeypatch, most, samples):
    monkeypatch.setattr("qdq_widgets.histograms.MOST_VALUES", most)
    model = HeldModel.of(monkeypatch)
    given = []

    def values(_, data, names, *, batch_size):
        given.append((len(data), batch_size))
        for start in range(0, len(data), batch_size):
            yield SimpleNamespace(float=dict.fromkeys(names, data[start : start + batch_size]))

    monkeypatch.setattr(qdq, "tensor_values", values)
    (found,) = model.count("image")
    assert given == [(samples, min(8, samples))]
    assert sum(found.counts) == samples * 8 * 8 * 4


def test_a_stream_is_read_until_there_are_enough_samples_or_a_stop(monkeypatch):
    batch = {"image": np.zeros((8, 8, 8, 4), "float32")}
    model = HeldModel.of(monkeypatch, batches=[batch] * 9)
    (found,) = model.count("image")
    assert sum(found.counts) == SAMPLES * 8 * 8 * 4
    job = Job("histogram", lambda _: None)
    job.stop()
    model = HeldModel.of(monkeypatch, batches=[batch] * 9)
    (found,) = count_values(model, {}, lambda: iter([]), job, ["image"])
    assert sum(found.counts) == 8 * 8 * 8 * 4
