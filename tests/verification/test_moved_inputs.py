"""A model that reads integers is moved by steps at the first real numbers that it makes of them."""

import keras
import numpy as np
import pytest
from keras import layers

import qdq_workbench as qdq
from qdq_workbench.verification.moved_inputs import BehindTensors, differences_behind, first_floats, moved_outputs


def words(*, mask=False):
    """Two embeddings of one input, joined, and a recurrent layer that skips zeros if `mask`."""
    tokens = keras.Input((6,), dtype="int32", name="tokens")
    x = layers.Embedding(20, 8, mask_zero=mask, name="embed")(tokens)
    x = layers.Dense(8, activation="tanh", name="dense")(x)
    x = layers.LSTM(4, name="lstm")(x) if mask else layers.Flatten(name="flatten")(x)
    return keras.Model(tokens, layers.Dense(3, name="head")(x))


def deep():
    """A deep transformer with random weights, whose outputs turn on single roundings."""
    wide = keras.initializers.RandomNormal(stddev=0.5)
    tokens = keras.Input((12,), dtype="int32", name="tokens")
    x = layers.Embedding(60, 16, name="embed")(tokens)
    for block in range(6):
        a = layers.MultiHeadAttention(2, 8, kernel_initializer=wide, name=f"attention_{block}")(x, x)
        x = layers.LayerNormalization(name=f"norm_{block}")(layers.Add(name=f"add_{block}")([x, a]))
        h = layers.Dense(32, activation="gelu", kernel_initializer=wide, name=f"up_{block}")(x)
        h = layers.Dense(16, kernel_initializer=wide, name=f"down_{block}")(h)
        x = layers.LayerNormalization(name=f"last_{block}")(layers.Add(name=f"sum_{block}")([x, h]))
    return keras.Model(tokens, layers.Dense(4, name="head")(x))


def tokens_of(model, count=8):
    return np.random.default_rng(0).integers(0, 20, (count, *model.inputs[0].shape[1:])).astype("int32")


def quantized(model, data):
    q_model = qdq.quantize_model(model, target="onnxruntime")
    qdq.calibrate(q_model, data, verbose=False)
    return q_model


def graph_of(inputs, outputs):
    return qdq.build_graph(keras.Model(inputs, outputs))


def test_the_first_floats():
    tokens = keras.Input((6,), dtype="int32", name="tokens")
    kinds = keras.Input((6,), dtype="int32", name="kinds")
    sums = layers.Embedding(20, 4, name="words")(tokens + 1) + layers.Embedding(2, 4, name="kinds_of")(kinds)
    assert first_floats(graph_of([tokens, kinds], layers.Dense(2)(sums))) == ["words", "kinds_of"]
    image = keras.Input((4, 4, 3), dtype="uint8", name="image")
    assert first_floats(graph_of(image, layers.Conv2D(2, 3)(layers.Rescaling(1 / 255, name="scaled")(image)))) == [
        "scaled"
    ]
    real = keras.Input((4,), name="real")
    both = layers.Concatenate()([real, layers.Flatten()(layers.Embedding(20, 4)(tokens))])
    assert first_floats(graph_of([real, tokens], layers.Dense(2)(both))) == []


@pytest.mark.parametrize("mask", [False, True])
def test_from_there_on_the_model_computes_what_it_computes(mask):
    model = words(mask=mask)
    data = tokens_of(model)
    data[:, 4:] = 0
    q_model = quantized(model, data)
    calls = [len(layer._inbound_nodes) for layer in q_model.layers]
    behind = BehindTensors(q_model, [data], first_floats(q_model.plan.graph))
    assert behind.names == ["embed"]
    expected = np.asarray(q_model(data, training=False))
    np.testing.assert_allclose(behind.outputs(behind.values)[0], expected, rtol=1e-5, atol=1e-6)
    moved = behind.outputs([behind.values[0] + np.float32(0.5)])[0]
    assert np.abs(moved - expected).max() > 1e-3
    assert [len(layer._inbound_nodes) for layer in q_model.layers] == calls


@pytest.mark.parametrize("which", [0, 1])
def test_one_half_of_a_split_moves_the_outputs_and_the_other_stays(which):
    x = keras.Input((4, 4), name="x")
    halves = keras.ops.split(layers.Dense(4, name="first")(x), 2, axis=2)
    model = keras.Model(x, layers.Concatenate(name="joined")(halves))
    data = np.random.default_rng(0).normal(size=(8, 4, 4)).astype(np.float32)
    q_model = quantized(model, data)
    name = q_model.plan.graph.node("joined").inputs[which]

    behind = BehindTensors(q_model, [data], [name])

    expected = np.split(np.asarray(q_model(data, training=False)), 2, axis=2)
    moved = np.split(behind.outputs([-behind.values[0]])[0], 2, axis=2)
    assert not np.allclose(moved[which], expected[which], atol=0.1)
    np.testing.assert_array_equal(moved[1 - which], expected[1 - which])


def test_behind_several_layers_of_a_model_the_first_real_numbers_may_be_its_output():
    tokens = keras.Input((5,), dtype="int32", name="tokens")
    model = keras.Model(tokens, layers.SimpleRNN(3, name="rnn")(layers.RepeatVector(3, name="repeat")(tokens)))
    data = tokens_of(model)
    q_model = quantized(model, data)
    wanted = [np.asarray(q_model(data, training=False))]

    for moved in moved_outputs(q_model, {"tokens": data}, pytest.fail, wanted, lambda _, values: values + 1):
        np.testing.assert_array_equal(moved[0], wanted[0] + 1)


def test_a_model_whose_layer_declares_another_shape_than_it_returns_verifies(tmp_path):
    tokens = keras.Input((4, 3), dtype="int32", name="tokens")
    counts = layers.CategoryEncoding(6, output_mode="count", name="counts")(tokens)
    model = keras.Model(tokens, layers.Softmax(name="shares")(counts))
    data = np.random.default_rng(0).integers(0, 6, (8, 4, 3)).astype(np.int32)
    returned = np.asarray(model(data)).shape
    assert returned[1:] != counts.shape[1:]  # a fault of Keras; without it this test has lost its subject
    q_model = quantized(model, data)
    path = qdq.export_onnx(q_model, tmp_path / "model.onnx", dynamic_batch=False).path
    assert qdq.verify_onnx(path, q_model, data).passed


def test_outputs_of_every_kind():
    tokens = keras.Input((6,), dtype="int32", name="tokens")
    embedded = layers.Embedding(20, 4, name="embed")(tokens)
    head = layers.Dense(2, name="head")(layers.Flatten(name="flatten")(embedded))
    model = keras.Model(tokens, {"head": head, "embedded": embedded, "longer": tokens + 1})
    data = tokens_of(model)
    q_model = quantized(model, data)
    wanted = [np.asarray(value, np.float32) for value in keras.tree.flatten(q_model(data, training=False))]
    calls = []

    def move(name, values):
        calls.append(name)
        return values + np.float32(0.25)

    for found in moved_outputs(q_model, {"tokens": data}, pytest.fail, wanted, move):
        for ours, own in zip(found, wanted, strict=True):
            assert ours.shape == own.shape
        assert any(np.abs(ours - own).max() > 0.1 for ours, own in zip(found, wanted, strict=True))
    assert set(calls) == {"embed"}


def test_a_deep_model_of_words_verifies(tmp_path):
    model = deep()
    data = tokens_of(model, 16)
    q_model = qdq.quantize_model(model, custom_qdq_cases=[qdq.AutoQDQCase()], target="onnxruntime")
    qdq.calibrate(q_model, data, verbose=False)
    behind = BehindTensors(q_model, [data], first_floats(q_model.plan.graph))
    step = q_model.activation_ranges()["embed"]
    wanted = [np.asarray(q_model(data, training=False))]

    def move(_, values):
        moved = values.copy()
        moved.reshape(len(values), -1)[:, 0] += np.float32((step[1] - step[0]) / 255.0)
        return moved

    moved = moved_outputs(q_model, {"tokens": data}, pytest.fail, wanted, move)
    assert behind.names == ["embed"]
    # A thousandth of the outputs was what `verify_onnx` allowed.
    assert np.abs(moved[0][0] - wanted[0]).mean() > 3e-3 * np.abs(wanted[0]).mean()
    path = qdq.export_onnx(q_model, tmp_path / "deep.onnx").path
    qdq.verify_onnx(path, q_model, data).raise_if_failed()


def test_differences_behind_tensors_are_summed_up():
    """Each tensor is moved alone, by what is told of it, and nothing else of it moves."""
    x = keras.Input((2,), name="x")
    first = layers.Dense(2, kernel_initializer="identity", name="first")(x)
    second = layers.Dense(2, kernel_initializer="identity", name="second")(first)
    q_model = qdq.quantize_model(keras.Model(x, [layers.Rescaling(4.0)(second), first]), target="onnxruntime")
    data = np.float32([[0.5, -0.5], [0.25, 0.75]])
    q_model.quantization_enabled = False
    base = dict(zip(["end", "middle"], map(np.asarray, q_model(data)), strict=True))
    moves = [("second", np.float32([[1, 0], [0, 0]])), ("first", np.float32([[-2, 0], [0, -2]]))]
    behind = list(differences_behind(q_model, [data], base, moves))
    assert behind == [{"end": 1.0, "middle": 0.0}, {"end": pytest.approx(5.0), "middle": pytest.approx(1.0)}]
