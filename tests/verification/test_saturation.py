"""Processors without VNNI saturate sums of products; that is no fault of a file, and its report says what they do."""

import dataclasses

import keras
import numpy as np
import onnx
import onnxruntime
import pytest
from exact_runs import run_file_exactly
from qdq_files import FileMaker, save
from small_models import nested_net, samples

import qdq_workbench as qdq
from qdq_workbench.onnx_graph.batches import run_session
from qdq_workbench.onnx_graph.processor import kernels_saturate
from qdq_workbench.onnx_graph.sessions import make_session
from qdq_workbench.verification import alone, parity, saturation

OPTION = "session.x64quantprecision"


@pytest.fixture(scope="module")
def large_sums(tmp_path_factory):
    """A file whose products are nearly as large as integers allow, its model, and samples."""
    return file_of_large_sums(tmp_path_factory.mktemp("sums"), bits=8)


def file_of_large_sums(folder, bits):
    x = keras.Input((64,), name="x")
    model = keras.Model(x, keras.layers.Dense(4, name="dense", kernel_initializer=keras.initializers.Constant(0.5))(x))
    target = qdq.targets.get_target("onnxruntime")
    target = dataclasses.replace(target, weight=target.weight.replace(num_bits=bits))
    data = np.random.default_rng(0).uniform(0.8, 1.0, (16, 64)).astype(np.float32)
    q_model = qdq.quantize_model(model, target=target)
    qdq.calibrate(q_model, data, verbose=False)
    qdq.export_onnx(q_model, folder / "model.onnx")
    return folder / "model.onnx", q_model, data


def run(path, data, **settings):
    options = onnxruntime.SessionOptions()
    for name, value in settings.items():
        options.add_session_config_entry(name.replace("__", "."), value)
    return onnxruntime.InferenceSession(str(path), options, ["CPUExecutionProvider"]).run(None, {"x": data})[0]


@pytest.mark.parametrize("with_model", [True, False])
def test_the_file_is_verified_and_what_this_processor_does_is_said(large_sums, with_model):
    path, q_model, data = large_sums
    exact = run(path, data, session__x64quantprecision="1")
    lost = float(np.abs(run(path, data) - exact).mean())

    report = qdq.verify_onnx(path, q_model if with_model else None, data=data).raise_if_failed()

    assert np.abs(exact - q_model.predict(data, verbose=0)).max() < 1e-3
    assert bool(report.processor_remark) == kernels_saturate() == (lost > 0.01)  # on this computer
    if report.processor_remark:
        assert OPTION in report.processor_remark
        assert report.figures["saturation"]["mean_difference"] == pytest.approx(lost, rel=1e-3)
        assert f"note  {report.processor_remark}" in report.summary()
        assert report.to_dict()["processor_remark"] == report.processor_remark


def test_seven_bits_are_exact_everywhere(tmp_path):
    path, q_model, data = file_of_large_sums(tmp_path, bits=7)
    report = qdq.verify_onnx(path, q_model, data=data).raise_if_failed()
    assert report.processor_remark == ""
    assert np.abs(run(path, data) - q_model.predict(data, verbose=0)).max() < 1e-3


@pytest.mark.parametrize("exact_helps", [True, False])
@pytest.mark.parametrize("with_model", [True, False])
def test_exact_sums_explain_only_what_they_repair(large_sums, with_model, exact_helps, monkeypatch):
    """As on a processor that saturates; where the difference remains with exact sums, the file fails."""
    path, q_model, data = large_sums
    module = parity if with_model else alone
    make, run_sessions = module.make_session, module.run_session
    disturbed = []

    def made(proto, *, optimized, as_planned=False, exact_sums=False):
        session = make(proto, optimized=optimized, as_planned=as_planned, exact_sums=exact_sums)
        if optimized and not (exact_sums and exact_helps):
            disturbed.append(session)
        return session

    def ran(session, inputs):
        shift = 1.0 if any(session is one for one in disturbed) else 0.0
        return {name: values + shift for name, values in run_sessions(session, inputs).items()}

    for place in (module, saturation):
        monkeypatch.setattr(place, "make_session", made)
        monkeypatch.setattr(place, "run_session", ran)

    report = qdq.verify_onnx(path, q_model if with_model else None, data=data)

    assert report.passed == exact_helps
    assert bool(report.processor_remark) == exact_helps
    if exact_helps:
        assert report.figures["saturation"]["mean_difference"] > 0.9
        assert any("exact sums; with default settings 1" in check.detail for check in report.checks)


def test_exact_sums_are_tried_before_what_runs_the_model_once_per_pair(large_sums, monkeypatch):
    path, q_model, data = large_sums
    run_sessions, make, saturating = parity.run_session, parity.make_session, []

    def made(proto, **how):
        session = make(proto, **how)
        if how["optimized"] and not how.get("exact_sums"):
            saturating.append(session)
        return session

    def ran(session, inputs):
        shift = 1.0 if any(session is one for one in saturating) else 0.0
        return {name: values + shift for name, values in run_sessions(session, inputs).items()}

    monkeypatch.setattr(parity, "make_session", made)
    monkeypatch.setattr(parity, "run_session", ran)
    monkeypatch.setattr(parity, "may_saturate", lambda _: True)
    monkeypatch.setattr(parity.Parity, "_moved_behind", lambda *_: pytest.fail("the model was run for known errors"))
    report = qdq.verify_onnx(path, q_model, data=data).raise_if_failed()
    assert any("exact sums; with default settings 1" in check.detail for check in report.checks)


def test_weights_that_several_kernels_read(tmp_path):
    """ONNX Runtime refuses them in its exact kernels as they are in the file."""
    model = nested_net()
    q_model = qdq.quantize_model(model, target="onnxruntime")
    data = samples(model, 32)
    qdq.calibrate(q_model, data, verbose=False)
    qdq.export_onnx(q_model, tmp_path / "model.onnx")
    proto = onnx.load(tmp_path / "model.onnx")
    plain = onnxruntime.SessionOptions()
    plain.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(proto.SerializeToString(), plain, ["CPUExecutionProvider"])
    inputs = dict(zip((value.name for value in proto.graph.input), [data], strict=True))
    expected = session.run(None, inputs)
    for found, wanted in zip(run_file_exactly(tmp_path / "model.onnx", inputs), expected, strict=True):
        np.testing.assert_allclose(found, wanted, atol=1e-6)


def test_a_shared_weight_without_a_zero_point(tmp_path):
    f = FileMaker()
    codes = f.constant("codes", np.arange(36, dtype=np.int8).reshape(2, 2, 3, 3))
    weight = f.node("DequantizeLinear", [codes, f.constant("scale", np.float32(0.01))], "weight")
    tensor = "x"
    for name in ("one", "two"):
        tensor = f.node("Conv", [f.pair(tensor, f"{name}_in", zero=128), weight], name, pads=[1, 1, 1, 1])
    path = save(f.model(f.pair(tensor, "out", zero=128)), tmp_path / "model.onnx")
    inputs = {"x": np.random.default_rng(0).normal(size=(1, 2, 4, 4)).astype(np.float32)}
    plain = run_session(make_session(onnx.load(path), optimized=False), inputs)
    np.testing.assert_allclose(run_file_exactly(path, inputs)[0], plain["out_dq"], atol=0.11)


def test_the_processor_is_asked_without_a_word(capfd):
    kernels_saturate.__wrapped__()
    assert capfd.readouterr().err == ""
