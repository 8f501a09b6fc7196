"""Times of OpenVINO: its execution graph as it was recorded, matched with the file; measured where it is installed."""

import re
import sys

import onnx
import pytest
from small_models import residual_net, samples

import qdq_workbench as qdq
from qdq_workbench.errors import QDQError
from qdq_workbench.profiling import profile_onnx
from qdq_workbench.profiling.openvino_runner import ExecutedNode, match_executed

# What OpenVINO 2026.4 executes for the small residual network that was quantized for it.
EXECUTED = (
    ExecutedNode("FakeQuantize_4964", "Subgraph", "jit_avx512_f32", ("FakeQuantize_4964",)),
    ExecutedNode(
        "stem/BiasAdd/WithoutBiases",
        "Convolution",
        "brgconv_avx512_I8",
        ("stem/BiasAdd/WithoutBiases", "Multiply_4673", "stem/BiasAdd", "stem_relu/QuantizeLinear"),
    ),
    ExecutedNode(
        "conv/BiasAdd/WithoutBiases",
        "Convolution",
        "brgconv_avx512_I8",
        ("conv/BiasAdd/WithoutBiases", "Multiply_4710", "conv/BiasAdd", "Multiply_4725"),
    ),
    ExecutedNode("relu/QuantizeLinear", "Subgraph", "jit_avx512_bf16", ("add/Add", "relu/QuantizeLinear")),
    ExecutedNode("pool/Mean", "Reduce", "jit_avx512_I8", ("pool/Mean",)),
    ExecutedNode("pool/Mean_f32_acdb_bf16_abcd_pool/Mean/Squeeze", "Reorder", "jit_uni_f32"),
    ExecutedNode("pool/QuantizeLinear", "Subgraph", "jit_avx512_bf16", ("pool/QuantizeLinear",)),
    ExecutedNode("head", "FullyConnected", "brgemm_avx512_I8", ("head",)),
)


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    model = residual_net()
    q_model = qdq.quantize_model(model, custom_qdq_cases=[qdq.AutoQDQCase()], target="openvino")
    qdq.calibrate(q_model, samples(model), verbose=False)
    return qdq.export_onnx(q_model, tmp_path_factory.mktemp("openvino") / "model.onnx").path


def test_kernels_are_told_by_the_names_that_they_stand_for(file):
    kernels = match_executed(onnx.load(file), EXECUTED)
    layers = [{name.split("/")[0] for name in kernel.nodes if not name.endswith("Linear")} for kernel in kernels]
    assert [
        (kernel.kind, (kernel.leader or "").split("/")[0], found) for kernel, found in zip(kernels, layers, strict=True)
    ] == [
        ("pair", "", set()),
        (None, "stem", {"stem", "stem_relu"}),
        (None, "conv", {"conv"}),
        (None, "add", {"add", "relu"}),
        (None, "pool", {"pool"}),
        ("layout", "", set()),
        ("pair", "pool", set()),
        (None, "head", {"head"}),
    ]
    assert kernels[1].operator == "Convolution (brgconv_avx512_I8)"


def test_times_by_layer(file):
    pytest.importorskip("openvino", reason="needs the optional extra openvino")
    report = profile_onnx(file, threads=1, rounds=2, batch=64, baseline=file, runtime="openvino")
    assert {entry.layer for entry in report.layers} <= {"stem", "conv", "add", "relu", "pool", "head"}
    assert "stem_relu" in report.for_layer("stem").fused
    spent = sum(entry.ms for entry in (*report.layers, *report.others))
    assert spent == pytest.approx(report.total_ms)
    assert report.for_layer("conv").ms > 0
    assert f"threads: 1, OpenVINO {report.runtime}" in report.summary()
    assert "extremes of 2 rounds" in report.summary()


def test_a_runtime_that_is_not_there_is_named(file, monkeypatch):
    monkeypatch.setitem(sys.modules, "openvino", None)
    with pytest.raises(QDQError, match=re.escape("pip install 'openvino>=2025.0'")):
        profile_onnx(file, runtime="openvino")
    with pytest.raises(QDQError, match=r"one of 'onnxruntime', 'openvino'.*runtime='tensorrt'"):
        profile_onnx(file, runtime="tensorrt")
