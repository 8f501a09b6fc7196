"""Files of all opsets, with fixed and dynamic batch, are verified with optimizations off and on; or say why not."""

import keras
import onnx
import onnxruntime
import pytest
from keras import layers
from small_models import residual_net, samples

import qdq_workbench as qdq
from qdq_workbench.export.build_onnx import MAX_OPSET
from qdq_workbench.verification import count_integer_kernels

IR_VERSIONS = {13: 7, 17: 8, 21: 10, 22: 10, 23: 11, 24: 12}  # the least that ONNX's table of releases has for each


@pytest.fixture(scope="module", params=["tensorrt", "onnxruntime"])
def calibrated(request):
    model = residual_net()
    q_model = qdq.quantize_model(model, target=request.param)
    qdq.calibrate(q_model, samples(model), verbose=False)
    return q_model


# ONNX Runtime opens files of opset 24 from 1.24 on.
NEWEST = 24 if tuple(map(int, onnxruntime.__version__.split(".")[:2])) >= (1, 24) else 22
#: An open batch at every opset, and a fixed one at the outermost.
OPSETS = (13, 17, 21, min(MAX_OPSET, NEWEST))
CASES = [*((opset, True) for opset in OPSETS), (OPSETS[0], False), (OPSETS[-1], False)]


@pytest.mark.parametrize(("opset", "dynamic_batch"), CASES)
def test_every_opset_and_batch_is_verified(opset, dynamic_batch, calibrated, tmp_path):
    report = qdq.export_onnx(calibrated, tmp_path / "model.onnx", opset=opset, dynamic_batch=dynamic_batch)
    assert report.opset == opset
    assert onnx.load(report.path).ir_version == IR_VERSIONS[opset]
    verified = qdq.verify_onnx(report.path, calibrated, samples(calibrated))
    assert verified.passed, verified
    runs = {check.name.rpartition(" with")[2] for check in verified.checks if check.name.startswith("output ")}
    assert runs == {" integer kernels", "out optimizations"}


@pytest.fixture(scope="module")
def per_step():
    keras.utils.set_random_seed(0)
    steps = keras.Input((3, 6, 6, 2), name="steps")
    x = layers.TimeDistributed(layers.Conv2D(2, 3, activation="relu"), name="conv")(steps)
    x = layers.TimeDistributed(layers.Flatten(), name="flat")(x)
    model = keras.Model(steps, layers.TimeDistributed(layers.Dense(3), name="head")(x))
    q_model = qdq.quantize_model(model, target="tensorrt")
    qdq.calibrate(q_model, samples(model), verbose=False)
    return q_model


@pytest.mark.parametrize("opset", [17, 21])
def test_int8_pairs_in_front_of_reshapes_are_verified_at_every_opset(opset, per_step, tmp_path):
    path = qdq.export_onnx(per_step, tmp_path / "model.onnx", opset=opset).path
    verified = qdq.verify_onnx(path, per_step, samples(per_step))
    assert verified.passed
    told = [check.detail for check in verified.checks if "disabled_optimizers" in check.detail]
    assert bool(told) == (not opens(path))
    assert opset == 21 or not told


def opens(path):
    """Return whether ONNX Runtime opens a file as it is; from 1.25 on, not one with such pairs at opset 21."""
    try:
        onnxruntime.InferenceSession(path)
    except Exception:  # noqa: BLE001 - ONNX Runtime has a class of its own for every code
        return False
    return True


def test_what_onnx_runtime_refuses_is_a_failed_check(calibrated, tmp_path, monkeypatch):
    path = qdq.export_onnx(calibrated, tmp_path / "model.onnx").path

    def refuse(*_, **__):
        raise RuntimeError("no such kernel")

    monkeypatch.setattr("onnxruntime.InferenceSession", refuse)
    verified = qdq.verify_onnx(path, calibrated, samples(calibrated))
    assert not verified.passed
    assert verified.checks[-1].name == "opens in ONNX Runtime"
    assert "refuses the file: no such kernel" in verified.checks[-1].detail


def test_counting_kernels_of_a_refused_file_says_so(tmp_path):
    path = tmp_path / "model.onnx"
    node = onnx.helper.make_node("NoSuchOperator", ["x"], ["y"])
    values = [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [1]) for name in "xy"]
    graph = onnx.helper.make_graph([node], "g", values[:1], values[1:])
    onnx.save(onnx.helper.make_model(graph), path)
    with pytest.raises(qdq.errors.VerificationError, match="ONNX Runtime refuses the file"):
        count_integer_kernels(path)
