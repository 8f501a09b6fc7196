"""Times of LiteRT: recorded events of its profiler, matched with operators; measured where it is installed."""

import importlib.util
import sys

import keras
import numpy as np
import pytest
from keras import layers
from small_models import residual_net, samples

import qdq_workbench as qdq
from qdq_workbench.errors import FileAccessError, QDQError
from qdq_workbench.profiling import profile_onnx
from qdq_workbench.profiling.litert_kernels import (
    Operator,
    OperatorOwners,
    kernel_events,
    layers_of,
    match_events,
)

installed = pytest.mark.skipif(
    importlib.util.find_spec("ai_edge_litert") is None, reason="LiteRT's own package, ai-edge-litert, is not installed"
)

# The small residual network on the grids of LiteRT, and a run of it in LiteRT 2.3.
OPERATORS = (
    Operator("QUANTIZE", ("qdq.image",)),
    Operator("CONV_2D", ("stem", "stem_relu")),
    Operator("CONV_2D", ("conv",)),
    Operator("ADD", ("add", "relu")),
    Operator("MEAN", ("pool",)),
    Operator("FULLY_CONNECTED", ("head",)),
    Operator("DEQUANTIZE", ("DEQUANTIZE 6",)),
)
EVENTS = (
    (1, "LiteRT::Run[buffer registration]", 19, 0),
    (1, "Invoke", 24, 0),
    (8, "Convert (NC)", 0, 0),
    (8, "Convolution (NHWC, QC8) IGEMM", 1, 1),
    (8, "Convolution (NHWC, QC8) IGEMM", 1, 2),
    (8, "Add (ND)", 0, 3),
    (8, "Clamp (NC)", 0, 4),
    (8, "Mean (ND) Reduce", 0, 5),
    (8, "Static Reshape (NC)", 0, 6),
    (8, "Fully Connected (NC, QS8, QC8W) GEMM", 0, 7),
    (8, "Convert (NC)", 0, 8),
    (32, "Invoke", 4294967296, 18446744073709551615),
    (1, "LiteRT::Run[Buffer sync]", 17, 0),
)


def found(operators, events):
    kernels = match_events(operators, kernel_events(events))
    owners = OperatorOwners(kernels)
    return [(kernel.kind, owners.layer(kernel.leader), list(owners.fused(kernel, kernel.leader))) for kernel in kernels]


def test_kernels_of_xnnpack_are_matched_with_operators_in_order():
    assert found(OPERATORS, EVENTS) == [
        ("pair", "qdq.image", []),
        (None, "stem", ["stem_relu"]),
        (None, "conv", []),
        (None, "add", ["relu"]),
        (None, "add", ["relu"]),  # the ReLU of the sum, which has a kernel of its own
        (None, "pool", []),
        ("layout", "Static Reshape (NC)", []),
        (None, "head", []),
        ("pair", "DEQUANTIZE 6", []),
    ]
    names = [kernel.name for kernel in match_events(OPERATORS, kernel_events(EVENTS))]
    assert len(set(names)) == len(names)


def test_litert_s_own_kernels_are_told_by_number_and_the_rest_stays_in_order():
    operators = (
        *OPERATORS[:3],
        Operator("GATHER", ("gather",)),
        Operator("FULLY_CONNECTED", ("one",)),
        Operator("FULLY_CONNECTED", ("two",)),
    )
    events = (
        (2, "QUANTIZE", 4, 0),
        (2, "CONV_2D", 90, 1),
        (2, "CONV_2D", 70, 2),
        (2, "GATHER", 1, 3),
        (2, "TfLiteXNNPackDelegate", 9, 7),
        (4, "Fully Connected (NC, F32) GEMM", 5, 0),
        (4, "Fully Connected (NC, F32) GEMM", 3, 1),
    )
    assert [layer for _, layer, _ in found(operators, events)] == ["qdq.image", "stem", "conv", "gather", "one", "two"]
    alone = events[:-2]  # a delegate that does not tell what it is made of is one kernel
    assert [layer for _, layer, _ in found(operators, alone)][-1] == "TfLiteXNNPackDelegate"


def test_no_kernel_is_matched_with_an_operator_behind_one_that_must_have_its_own():
    events = ((8, "Convert (NC)", 1, 0), (8, "Convert (NC)", 1, 1), (8, "Convolution (NHWC, QC8) IGEMM", 7, 2))
    operators = (Operator("QUANTIZE", ("a",)), Operator("CONV_2D", ("conv",)), Operator("DEQUANTIZE", ("b",)))

    assert found(operators, events) == [("pair", "a", []), ("pair", "Convert (NC)", []), (None, "conv", [])]


def test_padding_in_front_of_a_convolution_belongs_to_its_kernel():
    operators = (Operator("PAD", ("pad",)), Operator("CONV_2D", ("conv",)))

    assert found(operators, ((8, "Convolution (NHWC, QC8) IGEMM", 7, 0),)) == [(None, "conv", ["pad"])]


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["net_1/relu_1/Relu;net_1/conv_1/BiasAdd;net_1/conv_1/convolution"], ("conv", "relu")),
        (["net_1/inner_1/conv_1_1/BiasAdd"], ("inner/conv_1",)),
        (["net_1/flatten_1/Reshape;net_1/qdq.mean_1/FakeQuantWithMinMaxVars"], ("flatten",)),
        (["net_1/qdq.image_1/FakeQuantWithMinMaxVars;net_1/qdq.image_1/FakeQuantWithMinMaxVars/min"], ("qdq.image",)),
        (["net_1/attention_1/query_1/einsum/Einsum"], ("attention/query/einsum",)),
        (["net/conv/BiasAdd", "net/conv_1/BiasAdd"], ("conv_1", "conv")),
        (["PartitionedCall:0"], ()),
    ],
)
def test_layers_are_told_by_the_scopes_of_tensors(names, expected):
    assert layers_of([names]) == [expected]


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
