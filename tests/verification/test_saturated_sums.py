"""Without VNNI, ONNX Runtime's 8-bit kernels saturate sums of two products; that is no fault of the file."""

import dataclasses

import keras
import numpy as np
import onnxruntime
import pytest

import qdq_workbench as qdq
from qdq_workbench.verification import alone, parity

NOTE = "session.x64quantprecision"


def file_of_large_sums(folder, bits=8):
    """Return a file whose products are as large as they can be, its model, and samples."""
    x = keras.Input((64,), name="x")
    dense = keras.layers.Dense(4, name="dense")
    model = keras.Model(x, dense(x))
    dense.set_weights([np.full((64, 4), 0.5, np.float32), np.zeros(4, np.float32)])
    target = qdq.targets.get_target("onnxruntime")
    target = dataclasses.replace(target, weight=target.weight.replace(num_bits=bits))
    samples = np.random.default_rng(0).uniform(0.8, 1.0, (16, 64)).astype(np.float32)
    q_model = qdq.quantize_model(model, target=target)
    qdq.calibrate(q_model, samples, verbose=False)
    path = folder / "large_sums.onnx"
    qdq.export_onnx(q_model, path)
    return path, q_model, samples


def run(path, samples, settings=()):
    options = onnxruntime.SessionOptions()
    for name, value in settings:
        options.add_session_config_entry(name, value)
    return onnxruntime.InferenceSession(str(path), options, ["CPUExecutionProvider"]).run(None, {"x": samples})[0]


def details(report):
    return " ".join(check.detail for check in report.checks)


@pytest.mark.parametrize("with_model", [True, False])
def test_the_file_is_verified_and_the_processor_named(with_model, tmp_path):
    path, q_model, samples = file_of_large_sums(tmp_path)
    exact = run(path, samples, [(NOTE, "1")])
    saturates = bool(np.abs(run(path, samples) - exact).mean() > 0.01)  # so on this computer

    report = qdq.verify_onnx(path, q_model if with_model else None, data=samples).raise_if_failed()

    assert np.abs(exact - q_model.predict(samples, verbose=0)).max() < 1e-3
    assert (NOTE in details(report)) == saturates


def test_seven_bits_are_exact_everywhere(tmp_path):
    path, q_model, samples = file_of_large_sums(tmp_path, bits=7)

    report = qdq.verify_onnx(path, q_model, data=samples).raise_if_failed()

    assert NOTE not in details(report)
    assert np.abs(run(path, samples) - q_model.predict(samples, verbose=0)).max() < 1e-3


@pytest.mark.parametrize("with_model", [True, False])
@pytest.mark.parametrize("exact_helps", [True, False])
def test_only_what_exact_sums_repair_is_explained_by_them(with_model, exact_helps, tmp_path, monkeypatch):
    path, q_model, samples = file_of_large_sums(tmp_path, bits=7)
    module = parity if with_model else alone
    make, run_all = module.make_session, module.run_session
    disturbed = set()

    def made(proto, *, optimized, as_planned=False, exact_sums=False):
        session = make(proto, optimized=optimized, as_planned=as_planned, exact_sums=exact_sums)
        if optimized and not (exact_helps and (exact_sums or as_planned)):
            disturbed.add(id(session))
            sessions.append(session)  # an id is one session's as long as it lives
        return session

    def ran(session, inputs):
        shift = 1.0 if id(session) in disturbed else 0.0
        return {name: values + shift for name, values in run_all(session, inputs).items()}

    sessions = []
    monkeypatch.setattr(module, "make_session", made)
    monkeypatch.setattr(module, "run_session", ran)

    report = qdq.verify_onnx(path, q_model if with_model else None, data=samples)

    assert report.passed == exact_helps
    assert (NOTE in details(report)) == exact_helps
    if exact_helps:
        assert "default settings 1:" in details(report)
