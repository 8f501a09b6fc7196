"""The figures that the spine promises, on MLPerf Tiny's ResNet-8 and 5,000 images of the optional ../shared."""

import cifar
import numpy as np
import onnx
import pytest

import qdq_workbench as qdq
from qdq_workbench.verification import count_integer_kernels
from qdq_workbench.verification.saturation import exact_session


def accuracy(path, x, y):
    session = exact_session(onnx.load(path))
    name = session.get_inputs()[0].name
    scores = np.concatenate([session.run(None, {name: x[i : i + 250]})[0] for i in range(0, len(x), 250)])
    return float((scores.argmax(-1) == y).mean())


@pytest.fixture(scope="module")
def network(shared):
    path = shared / "data" / "cifar10_jpeg.npz"
    return cifar.trained_network(), cifar.images("train", 512)[0], cifar.images("test", 5000, path)


@pytest.fixture(scope="module")
def in_float(network, tmp_path_factory):
    """Return the size of the float model's file, and its accuracy."""
    model, _, (x, y) = network
    path = qdq.export_float_onnx(model, tmp_path_factory.mktemp("float") / "float.onnx")
    return path.stat().st_size, accuracy(path, x, y)


@pytest.mark.slow
@pytest.mark.parametrize("cases", [(), (qdq.ResNetV1QDQCase(),)], ids=["by default", "with a case"])
def test_after_calibration_alone(network, in_float, cases, tmp_path):
    model, calibration, (x, y) = network
    q_model = qdq.quantize_model(model, custom_qdq_cases=cases, target="onnxruntime")
    qdq.calibrate(q_model, calibration, verbose=False)
    report = qdq.export_onnx(q_model, tmp_path / "int8.onnx")
    qdq.verify_onnx(tmp_path / "int8.onnx", q_model, x[:128]).raise_if_failed()
    kernels = count_integer_kernels(tmp_path / "int8.onnx")
    assert {op: kernels.counts[op] for op in ("Conv", "Gemm", "Add")} == {"Conv": (9, 9), "Gemm": (1, 1), "Add": (3, 3)}
    float_bytes, float_accuracy = in_float
    assert report.bytes <= 0.34 * float_bytes
    assert accuracy(tmp_path / "int8.onnx", x, y) >= float_accuracy - 0.003
