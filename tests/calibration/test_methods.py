"""Every calibration method on a whole model, results that are saved and merged, ranges that are known beforehand."""

import keras
import numpy as np
import pytest
from keras import layers

import qdq_workbench as qdq
from qdq_workbench.calibration.observers import make_observer
from qdq_workbench.errors import DataError, FileAccessError
from qdq_workbench.quantizers import FixedQuantizer
from qdq_workbench.wrappers import QuantizeDequantize


def small_net():
    keras.utils.set_random_seed(1)
    image = keras.Input((8, 8, 2), name="image")
    hidden = layers.Conv2D(4, 3, name="conv")(image)
    hidden = layers.ReLU(name="relu")(hidden)
    hidden = layers.GlobalAveragePooling2D(name="pool")(hidden)
    return keras.Model(image, layers.Dense(3, name="head")(hidden), name="small_net")


METHODS = ["minmax", "moving_average", "percentile", "mse", "mae", "lp", "kl", "entropy", "power_of_two"]


@pytest.fixture(scope="module")
def q_model():
    return qdq.quantize_model(small_net(), target="onnxruntime")


def image(count=24, seed=0):
    return np.random.default_rng(seed).normal(size=(count, 8, 8, 2)).astype("float32")


@pytest.mark.parametrize("method", METHODS)
def test_every_method_gives_every_tensor_a_range_within_its_values(q_model, method):
    x = image()
    seen = qdq.calibrate(q_model, x, verbose=False).ranges
    found = qdq.calibrate(q_model, x, method, verbose=False).ranges
    assert set(found) == set(seen)
    for name, (low, high) in found.items():
        if method == "power_of_two":
            assert np.log2(high) % 1 == 0
            assert high >= max(-seen[name][0], seen[name][1]) > high / 2
        else:
            slack = 1e-5 * (seen[name][1] - seen[name][0])
            assert seen[name][0] - slack <= low <= high <= seen[name][1] + slack
    assert q_model.uncalibrated_tensors() == []


def test_the_grid_of_the_target_decides():
    """On a symmetric grid the least error behind a ReLU is elsewhere than on an asymmetric one."""
    x = image() ** 5  # rare large values, which are worth clipping
    found = {
        target: qdq.calibrate(qdq.quantize_model(small_net(), target=target), x, "mse", verbose=False).ranges["relu"]
        for target in ("tensorrt", "onnxruntime")
    }
    grids = {target: qdq.plan_placement(small_net(), target=target).tensors[0].quantizer for target in found}
    values = values_of(x, "relu")
    for target, ends in found.items():
        observer = make_observer("mse", "relu", grids[target])
        observer.update(values)
        np.testing.assert_allclose(ends, observer.range(), rtol=0.02)
    assert found["tensorrt"] != found["onnxruntime"]


def values_of(x, name):
    model = small_net()
    return keras.Model(model.inputs, model.get_layer(name).output).predict(x, verbose=0)


@pytest.mark.parametrize(("method", "rounding"), [("minmax", "scale"), ("moving_average", False), ("mse", True)])
def test_parts_merge_into_one_pass(q_model, tmp_path, method, rounding):
    x = image()
    settings = {"power_of_two": rounding, "batch_size": 6, "verbose": False}
    whole = qdq.calibrate(q_model, x, method, **settings)
    paths = [tmp_path / f"{start}.json" for start in (0, 6, 18)]
    for path, part in zip(paths, np.split(x, [6, 18]), strict=True):
        qdq.calibrate(q_model, part, method, **settings).save(path)
    parts = [qdq.CalibrationResult.load(path) for path in paths]
    in_steps = parts[0].merge(parts[1]).merge(parts[2])
    for merged in (qdq.CalibrationResult.merge(parts), parts[0].merge(*parts[1:]), in_steps):
        assert (merged.batches, merged.samples, merged.method) == (4, 24, method)
        for name, ends in whole.ranges.items():
            np.testing.assert_allclose(merged.ranges[name], ends, rtol=1e-6, atol=1e-9)
    fresh = qdq.quantize_model(small_net(), target="onnxruntime")
    qdq.apply_calibration(fresh, merged)
    assert fresh.uncalibrated_tensors() == []


def test_saved_results_are_what_they_were(q_model, tmp_path):
    result = qdq.calibrate(q_model, image(), "mse", power_of_two=True, verbose=False)
    result.save(tmp_path / "ranges.json")
    again = qdq.CalibrationResult.load(tmp_path / "ranges.json")
    assert again == result
    assert again.settings == {"power_of_two": "threshold"}
    assert {np.log2(high) % 1 for _, high in again.ranges.values()} == {0.0}


def test_bad_files(tmp_path):
    with pytest.raises(FileAccessError):
        qdq.CalibrationResult.load(tmp_path / "missing.json")
    with pytest.raises(DataError, match=r"ends in \.json"):
        qdq.CalibrationResult.load(tmp_path / "ranges.yaml")
    (tmp_path / "broken.json").write_text("{")
    with pytest.raises(DataError, match="not valid JSON"):
        qdq.CalibrationResult.load(tmp_path / "broken.json")
    (tmp_path / "damaged.json").write_text('{"format": "qdq-workbench/calibration-result", "version": 1}')
    with pytest.raises(DataError, match="damaged"):
        qdq.CalibrationResult.load(tmp_path / "damaged.json")


def test_results_that_do_not_belong_together(q_model):
    x = image()
    result = qdq.calibrate(q_model, x, verbose=False)
    other_target = qdq.quantize_model(small_net())
    model = keras.Sequential([keras.Input((8, 8, 2)), layers.Flatten(), layers.Dense(2)])
    others = {
        "method 'minmax' and 'mse'": qdq.calibrate(q_model, x, "mse", verbose=False),
        "settings": qdq.calibrate(q_model, x, power_of_two=True, verbose=False),
        "other grids": qdq.calibrate(other_target, x, verbose=False),
        "different tensors": qdq.calibrate(qdq.quantize_model(model), x, verbose=False),
        "earlier version": qdq.CalibrationResult("minmax", {}, result.ranges, 1, 24),
    }
    for message, other in others.items():
        with pytest.raises(DataError, match=message):
            result.merge(other)
    with pytest.raises(DataError, match="Received: dict"):
        result.merge(result.to_dict())
    with pytest.raises(DataError, match="nothing to merge"):
        qdq.CalibrationResult.merge([])


@pytest.mark.parametrize(("method", "asked"), [("minmax", True), ("mse", False), ("power_of_two", True)])
def test_histograms_feed_plots(q_model, method, asked):
    x = image()
    result = qdq.calibrate(q_model, x, method, histograms=asked, verbose=False)
    counts, edges = result.histograms["image"]
    assert counts.sum() == x.size
    assert len(edges) == len(counts) + 1
    assert edges[0] <= x.min() < edges[1]
    assert edges[-2] <= x.max() < edges[-1]
    np.testing.assert_array_equal(counts, np.histogram(x.astype("float64"), edges)[0])
    assert set(result.histograms) == set(result.ranges)
    merged = result.merge(qdq.calibrate(q_model, x, method, histograms=asked, verbose=False))
    np.testing.assert_array_equal(merged.histograms["image"][0], 2 * counts)


def test_no_histograms_unless_asked_for(q_model):
    assert qdq.calibrate(q_model, image(), verbose=False).histograms == {}


@pytest.mark.parametrize("method", ["mse", "entropy"])
def test_nan_is_an_error_under_every_method(q_model, method):
    with pytest.raises(DataError, match="'image' holds NaN"):
        qdq.calibrate(q_model, np.full((4, 8, 8, 2), np.nan, "float32"), method, verbose=False)


def test_ranges_that_are_known_beforehand_stay(monkeypatch):
    q_model = qdq.quantize_model(small_net())
    pair = q_model.activation_quantizers[0]
    fixed = QuantizeDequantize(pair.tensor, FixedQuantizer.from_spec(pair.spec, init_min=-9.0, init_max=9.0))
    fixed.build((None, 8, 8, 2))
    others = q_model.activation_quantizers[1:]
    monkeypatch.setattr(type(q_model), "activation_quantizers", property(lambda self: [fixed, *others]))
    result = qdq.calibrate(q_model, image(), verbose=False)
    assert result.ranges["image"] == fixed.range == (-9.0, 9.0)
    assert "image" not in result.states
    assert result.merge(result).ranges["image"] == (-9.0, 9.0)
    assert others[0].range is not None
