"""Initial states of recurrent layers: constants, and those of stacked cells, in the exported file."""

import keras
import numpy as np
import onnx
import pytest
from keras import layers

import qdq_workbench as qdq

ONES = np.ones((2, 4), np.float32)


def from_constants():
    x = keras.Input(batch_shape=(2, 5, 3), name="x")
    return keras.Model(x, layers.LSTM(4, name="loop")(x, initial_state=[ONES, ONES]))


def from_a_constant_and_a_tensor():
    x, h = keras.Input(batch_shape=(2, 5, 3), name="x"), keras.Input(batch_shape=(2, 4), name="h")
    return keras.Model([x, h], layers.LSTM(4, name="loop")(x, initial_state=[h, ONES]))


def stack_of_one_kind():
    x, a, b = (keras.Input(shape, name=name) for name, shape in [("x", (5, 3)), ("a", (4,)), ("b", (4,))])
    stack = layers.RNN([layers.GRUCell(4), layers.GRUCell(4)], name="stack")
    return keras.Model([x, a, b], stack(x, initial_state=[a, b]))


def stack_of_two_kinds():
    x, a, b, c = (keras.Input(s, name=n) for n, s in [("x", (5, 3)), ("a", (3,)), ("b", (4,)), ("c", (4,))])
    stack = layers.RNN([layers.GRUCell(3), layers.LSTMCell(4)], name="stack")
    return keras.Model([x, a, b, c], stack(x, initial_state=[a, [b, c]]))


@pytest.mark.parametrize(
    ("make", "operators"),
    [
        (from_constants, {"Loop"}),  # ONNX's operator would start from zeros
        (from_a_constant_and_a_tensor, {"Loop"}),
        (stack_of_one_kind, {"GRU"}),
        (stack_of_two_kinds, {"GRU", "LSTM"}),
    ],
)
def test_the_file_starts_where_the_model_starts(tmp_path, make, operators):
    keras.utils.set_random_seed(1)
    model = make()
    generator = np.random.default_rng(0)
    data = {each.name: generator.normal(size=(2, *each.shape[1:])).astype(np.float32) for each in model.inputs}
    q_model = qdq.quantize_model(model)
    qdq.calibrate(q_model, data, verbose=False)
    path = qdq.export_onnx(q_model, tmp_path / "model.onnx").path
    assert {node.op_type for node in onnx.load(path).graph.node} & {"Loop", "LSTM", "GRU"} == operators
    verification = qdq.verify_onnx(path, q_model, data)
    assert verification.passed, verification.summary()
