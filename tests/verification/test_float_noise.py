"""Values far below the last bit of 1 that come out of a saturating function are compared by size, not by steps."""

import keras
import numpy as np
import pytest
from keras import layers
from mock_graphs import chain

import qdq_workbench as qdq
from qdq_workbench.verification import parity
from qdq_workbench.verification.float_noise import NOISE, noise_of


@pytest.mark.parametrize("wrap", [lambda layer, name: layer, layers.SpectralNormalization])
def test_a_dead_sigmoid_is_no_difference(wrap, tmp_path, monkeypatch):
    image = keras.Input((4,), name="image")
    off = keras.initializers.Constant(-45.0)
    gate = wrap(layers.Dense(3, activation="sigmoid", bias_initializer=off, name="gate"), name="gate")
    model = keras.Model(image, gate(image))
    spec = qdq.QuantizationSpec()
    spec.add("gate", quantize_output=True)
    q_model = qdq.quantize_model(model, quantization_spec=spec, target="onnxruntime")
    data = np.random.default_rng(0).normal(size=(32, 4)).astype("float32")
    qdq.calibrate(q_model, data, verbose=False)
    assert q_model.activation_ranges()["gate"][1] < 1e-18
    path = qdq.export_onnx(q_model, tmp_path / "model.onnx").path
    assert qdq.verify_onnx(path, q_model, data).passed
    monkeypatch.setattr(parity, "noise_of", lambda *_: 0.0)
    assert "tensor by tensor" in [c.name for c in qdq.verify_onnx(path, q_model, data).checks if not c.passed]


@pytest.mark.parametrize(
    ("layers_before", "noise"),
    [
        ((("Conv2D", "conv"), ("ReLU", "relu")), 0.0),
        ((("Dense", "dense", {"activation": "sigmoid"}), ("Multiply", "last")), NOISE),
        ((("LSTM", "lstm"),), NOISE),
    ],
)
def test_only_what_saturates_is_noisy(layers_before, noise):
    graph = chain(*layers_before)
    last = layers_before[-1][1]
    assert noise_of(graph, last, ()) == noise


def test_noise_does_not_pass_a_pair():
    graph = chain(("Activation", "gate", {"activation": "tanh"}), ("Conv2D", "conv"))
    assert noise_of(graph, "conv", ()) == NOISE
    assert noise_of(graph, "conv", ("gate",)) == 0.0
