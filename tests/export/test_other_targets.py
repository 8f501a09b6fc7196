"""A model that is written for another target than it was quantized for is told so by every exporter, in one way."""

import keras
import numpy as np
import pytest

import qdq_workbench as qdq

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
