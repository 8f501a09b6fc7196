"""Ctrl-C never comes while Keras or TensorFlow is in the middle of a layer, and the next call goes as the first."""

import functools
import signal
import types

import keras
import numpy as np
import pytest

import qdq_workbench as qdq
from qdq_workbench._interrupts import _note

X = np.random.default_rng(0).normal(size=(4, 3)).astype("float32")


@pytest.fixture(scope="module")
def at(tmp_path_factory):
    """A model in all its forms."""
    folder = tmp_path_factory.mktemp("interrupted")
    image = keras.Input((3,), name="image")
    model = keras.Model(image, keras.layers.Dense(2, name="head")(keras.layers.Dense(3, name="first")(image)))
    q_model = qdq.quantize_model(model)
    qdq.calibrate(q_model, X, verbose=False)
    q_model.save(folder / "q.keras")
    qdq.export_onnx(q_model, folder / "q.onnx")
    return types.SimpleNamespace(folder=folder, model=model, q_model=q_model)


CALLS = {
    "quantize_model": lambda at: np.asarray(qdq.quantize_model(at.model)(X)),
    "calibrate": lambda at: qdq.calibrate(qdq.retarget(at.q_model, "tensorrt"), X, verbose=True).ranges,
    "export_onnx": lambda at: qdq.export_onnx(at.q_model, at.folder / "new.onnx").path.read_bytes(),
    "export_float_onnx": lambda at: qdq.export_float_onnx(at.model, at.folder / "float.onnx").read_bytes(),
    "verify_onnx": lambda at: qdq.verify_onnx(at.folder / "q.onnx", at.q_model, X).passed,
    "retarget": lambda at: np.asarray(qdq.retarget(at.q_model, "onnxruntime")(X)),
    "strip": lambda at: np.asarray(qdq.strip(at.q_model)(X)),
    "load_model": lambda at: np.asarray(qdq.load_model(at.folder / "q.keras")(X)),
}


@pytest.mark.parametrize("name", CALLS)
def test_it_comes_between_layers_and_leaves_nothing_behind(at, name, monkeypatch):
    expected, entered, left = CALLS[name](at), [], []

    def pressed_inside(usual):
        @functools.wraps(usual)  # Keras looks at the names of the arguments
        def call(self, *arguments, **keywords):
            if signal.getsignal(signal.SIGINT) is _note or not entered:  # else it is the test's own use of the result
                entered.append(1)
                signal.raise_signal(signal.SIGINT)
                result = usual(self, *arguments, **keywords)
                left.append(1)
                return result
            return usual(self, *arguments, **keywords)

        return call

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        for method in ("build", "call"):
            patched.setattr(keras.layers.Dense, method, pressed_inside(getattr(keras.layers.Dense, method)))
        CALLS[name](at)
    assert entered
    assert len(left) == len(entered), "the inside of a layer was interrupted"
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    again = CALLS[name](at)
    assert np.array_equal(again, expected) if isinstance(expected, np.ndarray) else again == expected
