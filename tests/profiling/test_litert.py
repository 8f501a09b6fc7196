"""Times of LiteRT, measured where it is installed, and files that are refused."""

import importlib.util
import sys

import keras
import numpy as np
import pytest
from keras import layers
from small_models import residual_net, samples

import qdq_workbench as qdq
from qdq_workbench.errors import FileAccessError, QDQError
from qdq_workbench.profiling import litert_runner, profile_onnx
from qdq_workbench.profiling.litert_runner import litert_feed

installed = pytest.mark.skipif(
    importlib.util.find_spec("ai_edge_litert") is None, reason="LiteRT's own package, ai-edge-litert, is not installed"
)


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    model = residual_net()
    q_model = qdq.quantize_model(model, custom_qdq_cases=[qdq.AutoQDQCase()], target="litert")
    qdq.calibrate(q_model, samples(model), verbose=False)
    return qdq.export_tflite(q_model, tmp_path_factory.mktemp("litert") / "model.tflite").path, samples(model)


@installed
def test_times_by_layer(file):
    path, data = file

    report = profile_onnx(path, data, runtime="litert", threads=1, rounds=2, baseline=path)

    told = {entry.layer: entry for entry in report.layers}
    assert list(told) == ["stem", "conv", "add", "pool", "head"]
    assert told["stem"].fused == ("stem_relu",)
    assert {entry.what for entry in report.others} == {"pair", "layout", "runtime"}
    total = sum(entry.ms for entry in (*report.layers, *report.others))
    assert total == pytest.approx(report.total_ms, rel=0.05)
    assert report.engine == "LiteRT"
    assert report.baseline.path == path
    assert "LiteRT" in report.summary()
    assert qdq.results.LatencyReport.from_dict(report.to_dict()) == report


@installed
def test_large_kernels_have_times_and_random_samples_do(tmp_path):
    keras.utils.set_random_seed(0)
    image = keras.Input((64, 64, 16), name="image")
    model = keras.Model(image, layers.Conv2D(16, 3, name="conv")(image))
    q_model = qdq.quantize_model(model, target="litert")
    qdq.calibrate(q_model, np.random.default_rng(0).normal(size=(4, 64, 64, 16)), verbose=False)
    path = qdq.export_tflite(q_model, tmp_path / "conv.tflite").path

    report = profile_onnx(path, runtime="litert", threads=1, rounds=1)

    assert report.for_layer("conv").share > 0.3


def test_random_samples_are_those_of_the_file_that_it_is_compared_with(monkeypatch):
    ends = {
        "image": {"shape_signature": [2, 50], "dtype": np.float32},
        "codes": {"shape_signature": [2, 3], "dtype": np.int8},
    }
    monkeypatch.setattr(litert_runner, "_inputs", lambda path: ends)
    first, second = (litert_feed(path, None, 2) for path in ("int8.tflite", "float.tflite"))
    np.testing.assert_array_equal(first["image"], second["image"])
    assert (first["image"].shape, first["image"].dtype) == ((2, 50), np.float32)
    assert -1.0 <= first["image"].min() < -0.9 < 0.9 < first["image"].max() <= 1.0
    assert (first["codes"].tolist(), first["codes"].dtype) == ([[0, 0, 0]] * 2, np.int8)


def test_files_of_the_other_format_are_refused_by_name(file, tmp_path):
    path, data = file
    other = tmp_path / "model.onnx"
    other.write_bytes(b"no file of LiteRT")

    with pytest.raises(FileAccessError, match="not a LiteRT file"):
        profile_onnx(other, data, runtime="litert")
    with pytest.raises(FileAccessError, match="no such file"):
        profile_onnx(tmp_path / "missing.tflite", data, runtime="litert")
    with pytest.raises(FileAccessError, match=r"measured by profile_onnx\(path, runtime='litert'\)"):
        profile_onnx(path, data)


def test_a_package_that_is_not_there_is_named(file, monkeypatch):
    monkeypatch.setitem(sys.modules, "ai_edge_litert", None)

    with pytest.raises(QDQError, match="TensorFlow's interpreter has no profiler"):
        profile_onnx(file[0], file[1], runtime="litert")
