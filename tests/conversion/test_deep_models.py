"""Models are built whatever their depth, and whether or not something reads their inputs."""

import keras
import numpy as np
from keras import layers

import qdq_workbench as qdq
from qdq_workbench.conversion.engine.deep_models import functional_model


def test_an_input_that_nothing_reads_stays_one():
    x, unread = keras.Input((3,), name="x"), keras.Input((2,), name="unread")
    model = functional_model([x, unread], layers.ReLU(name="relu")(x), name="model")

    assert [layer.name for layer in model.layers] == ["x", "unread", "relu"]
    np.testing.assert_array_equal(model([-np.ones((1, 3)), np.ones((1, 2))]), np.zeros((1, 3)))


def test_an_input_that_is_an_output_needs_no_other_reader():
    x = keras.Input((3,), name="x")

    np.testing.assert_array_equal(functional_model(x, x)(np.ones((1, 3))), np.ones((1, 3)))


def test_an_input_that_only_unread_results_of_a_nested_model_read_is_quantized(tmp_path):
    x, y = keras.Input((3,), name="x"), keras.Input((3,), name="y")
    inside = [keras.Input((3,), name="first"), keras.Input((3,), name="second")]
    ends = [layers.Dense(2, name="read")(inside[0]), layers.Dense(2, name="unread")(inside[1])]
    model = keras.Model([x, y], keras.Model(inside, ends, name="part")([x, y])[0])
    data = list(np.random.default_rng(0).normal(size=(2, 8, 3)).astype(np.float32))

    q_model = qdq.quantize_model(model, target="onnxruntime")
    qdq.calibrate(q_model, data, verbose=False)
    path = qdq.export_onnx(q_model, tmp_path / "model.onnx").path

    qdq.verify_onnx(path, q_model, data).raise_if_failed()
