"""Layers whose operators TensorFlow's converter writes wrong compute in LiteRT what they compute in Keras."""

import keras
import numpy as np
import pytest
from keras import layers
from litert_models import litert
from small_models import samples

import qdq_workbench as qdq
from qdq_workbench.export.litert.tflite_run import run_tflite

IMAGE, STEPS = (4, 4, 3), (4, 3)


MADE = [
    # The activation adds a number, which becomes the bias.
    (IMAGE, layers.Conv2DTranspose(2, 3, use_bias=False, activation="hard_sigmoid", name="adding")),
    (STEPS, layers.Conv1DTranspose(2, 3, use_bias=False, activation="hard_sigmoid", name="adding_on_steps")),
    (IMAGE, layers.Conv2DTranspose(1, 3, use_bias=False, activation="hard_sigmoid", name="one_channel")),
    # The kernel is a hybrid one.
    (IMAGE, layers.Conv2DTranspose(2, 3, bias_initializer="normal", activation="elu", name="transposed")),
    # The kernel reads integers and a weight in float.
    (STEPS, layers.EinsumDense("abc,cd->abd", (None, 5), bias_axes="d", activation="silu", name="einsum")),
    (STEPS, layers.EinsumDense("abc,cde->abde", (None, 2, 4), activation="tanh", name="two_axes")),
    (STEPS, layers.EinsumDense("abc,bd->adc", (5, 3), activation="gelu", name="middle_axis")),
]


@pytest.mark.parametrize("bits", [8, 16])
def test_they_compute_what_keras_computes(bits, tmp_path):
    keras.utils.set_random_seed(0)
    inputs, outputs = [], []
    for index, (shape, layer) in enumerate(MADE):
        inputs.append(keras.Input(shape, name=f"image_{index}"))
        outputs.append(layer(inputs[-1]))
    model = keras.Model(inputs, outputs)
    q_model = qdq.quantize_model(model, target=litert(8, bits))
    qdq.calibrate(q_model, samples(model), verbose=False)
    report = qdq.export_tflite(q_model, tmp_path / "model.tflite")
    verified = qdq.files.verify_tflite(report.path, q_model)
    assert verified.passed, verified.summary()
    assert report.weights == len(MADE)
    data = samples(model, seed=5)
    names = q_model.plan.graph.inputs
    found = run_tflite(report.path.read_bytes(), dict(zip(names, data, strict=True)))
    for layer, ours in zip(model.output_names, q_model(data, training=False), strict=True):
        np.testing.assert_allclose(found[layer], np.asarray(ours), atol=1e-5, err_msg=layer)
