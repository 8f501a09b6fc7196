"""One calibration serves all targets; a model that is written for another one is told so by every exporter alike."""

import keras
import numpy as np
import pytest
from exact_runs import run_file_exactly
from small_models import residual_net, samples

import qdq_workbench as qdq
from qdq_workbench.export.litert.tflite_run import run_tflite

WRITES = {
    "onnxruntime": ("model.onnx", lambda *given: qdq.export_onnx(*given, target="onnxruntime")),
    "litert": ("model.tflite", qdq.export_tflite),
    "litert firmware": ("model.npz", lambda *given: qdq.files.save_firmware(*given, target="litert")),
}


def quantized(target, *, trained):
    keras.utils.set_random_seed(0)
    image = keras.Input((4,), name="image")
    hidden = keras.layers.Dense(4, activation="relu", name="hidden")(image)
    q_model = qdq.quantize_model(keras.Model(image, keras.layers.Dense(2, name="head")(hidden)), target=target)
    x = np.random.default_rng(0).normal(size=(16, 4)).astype("float32")
    qdq.calibrate(q_model, x, verbose=False)
    if trained:
        q_model.compile("sgd", "mse")
        q_model.fit(x, x[:, :2], verbose=0)
    return q_model


@pytest.mark.parametrize("trained", [False, True])
@pytest.mark.parametrize("written", WRITES)
def test_the_report_says_that_the_plan_is_new_and_what_training_loses(written, trained, tmp_path):
    name, write = WRITES[written]
    target = written.split()[0]
    notes = write(quantized("tensorrt", trained=trained), tmp_path / name).notes
    assert notes[0] == f"Planned anew for {target} from the recorded ranges; the model was quantized for tensorrt."
    losses = [note for note in notes if note.startswith("The model was trained on the grid of tensorrt.")]
    assert len(losses) == trained
    assert all(f"retarget(q_model, '{target}')" in note for note in losses)
    own = write(quantized(target, trained=trained), tmp_path / name).notes
    assert not any("Planned anew" in note or "trained on" in note for note in own)


@pytest.mark.parametrize("target", ["litert", "onnxruntime"])
def test_the_report_of_a_file_that_the_runtime_does_not_read_says_which_one_it_reads(target, tmp_path):
    notes = qdq.export_onnx(quantized(target, trained=False), tmp_path / "model.onnx").notes
    assert any("LiteRT does not read ONNX: export_tflite" in note for note in notes) == (target == "litert")


def test_one_calibration_gives_verified_files_for_all_four_runtimes(tmp_path):
    model = residual_net()
    data = samples(model, 32)
    q_model = qdq.quantize_model(model, target="tensorrt")
    qdq.calibrate(q_model, data, verbose=False)
    ranges = q_model.activation_ranges()
    expected = np.asarray(model(data))
    assert set(qdq.target_names()) == {"tensorrt", "onnxruntime", "openvino", "litert"}
    for target in ("tensorrt", "onnxruntime", "openvino"):
        path = tmp_path / f"{target}.onnx"
        qdq.export_onnx(q_model, path, target=target)
        structure = qdq.verify_onnx(path, q_model, data).raise_if_failed().checks[1].detail
        assert ("planned anew for the file's target" in structure) == (target != "tensorrt")
        (found,) = run_file_exactly(path, {"image": data})
        assert np.abs(found - expected).mean() < np.ptp(expected) / 50, target
    path = tmp_path / "litert.tflite"
    qdq.export_tflite(q_model, path, batch=len(data))
    qdq.files.verify_tflite(path, q_model, data).raise_if_failed()
    (found,) = run_tflite(path.read_bytes(), {"image": data}).values()
    assert np.abs(found - expected).mean() < np.ptp(expected) / 50
    assert q_model.activation_ranges() == ranges
