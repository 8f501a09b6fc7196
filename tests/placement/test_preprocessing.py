"""Models that compute with text or look values up: refused when planning, with lines that really split them."""

import re

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers
from releases import KERAS

import qdq_workbench as qdq
from qdq_workbench.errors import UnsupportedModelError

WORDS = [["a"], ["b"], ["z"], ["c"]]
NUMBERS = np.array([[10], [20], [7], [30]])
RANDOM = np.random.default_rng(0).normal(size=(4, 4)).astype("float32")


def text():
    vectors = layers.TextVectorization(max_tokens=9, output_sequence_length=4, name="text")
    vectors.adapt(["a b c", "c d e"])
    sentence = keras.Input((), dtype="string")
    x = layers.GlobalAveragePooling1D()(layers.Embedding(9, 4)(vectors(sentence)))
    return keras.Model(sentence, layers.Dense(3)(x)), tf.constant(["a b", "c z", "", "e d c"])


def table(layer, dtype, data):
    value = keras.Input((1,), dtype=dtype)
    return keras.Sequential([value, layer, layers.Dense(3)]), data


def strings():
    return table(layers.StringLookup(vocabulary=["a", "b", "c"], output_mode="one_hot"), "string", tf.constant(WORDS))


def integers():
    return table(layers.IntegerLookup(vocabulary=[10, 20, 30], output_mode="one_hot"), "int64", NUMBERS)


def hashing():
    return table(layers.Hashing(5, output_mode="one_hot"), "int64", NUMBERS)


def beside_numbers():
    """A word and numbers; the numbers go to the table's side by themselves, through a dictionary."""
    word, numbers = keras.Input((1,), dtype="string", name="word"), keras.Input((4,), name="numbers")
    found = layers.StringLookup(vocabulary=["a", "b", "c"], output_mode="one_hot", name="lookup")(word)
    scores = layers.Dense(3)(layers.Concatenate()([found, numbers]))
    return keras.Model({"word": word, "numbers": numbers}, scores), {"word": tf.constant(WORDS), "numbers": RANDOM}


def nested():
    """Tables of a model of their own: its tensor is named by the layer that reads it."""
    word = keras.Input((1,), dtype="string")
    inner = keras.Model(word, layers.StringLookup(vocabulary=["a", "b"], output_mode="one_hot")(word), name="prepare")
    outer = keras.Input((1,), dtype="string")
    return keras.Model(outer, layers.Dense(3, name="dense")(inner(outer))), tf.constant(WORDS)


@pytest.mark.parametrize(
    ("make", "shown"),
    [(text, "TextVectorization"), (strings, "StringLookup"), (integers, "IntegerLookup"), (hashing, "Hashing"),
     (beside_numbers, "StringLookup"), (nested, "StringLookup")],
)  # fmt: skip
def test_the_lines_of_the_message_split_the_model(make, shown):
    model, data = make()
    with pytest.raises(UnsupportedModelError, match=f"{shown}.*qdq-workbench docs layer_families") as refused:
        qdq.quantize_model(model)
    names = split(model, refused.value)
    start = names["front"].predict(data, verbose=0)
    core = names["core"]
    np.testing.assert_array_equal(core.predict(start, verbose=0), model.predict(data, verbose=0))
    plan = qdq.plan_placement(core, target="onnxruntime")
    assert {tensor.kind for tensor in plan.tensors} == {"activation", "weight"}


def split(model, error):
    """Run the lines of the message."""
    code = re.search(r"Split it: (.*?)\. Quantize core", str(error)).group(1)
    names = {"model": model, "keras": keras}
    exec(code, names)
    return names


def test_what_is_split_off_goes_the_whole_way(tmp_path):
    model, data = beside_numbers()
    with pytest.raises(UnsupportedModelError) as refused:
        qdq.explain(model)
    names = split(model, refused.value)
    start = names["front"].predict(data, verbose=0)
    q_model = qdq.quantize_model(names["core"], target="onnxruntime")
    qdq.calibrate(q_model, start, verbose=False)
    qdq.verify_onnx(qdq.export_onnx(q_model, tmp_path / "core.onnx").path, q_model, start).raise_if_failed()


def test_a_table_behind_the_network_is_split_off_behind():
    image = keras.Input((4,))
    scores = layers.Dense(3, name="scores")(image)
    best = keras.ops.argmax(scores, axis=-1)
    names = layers.StringLookup(vocabulary=["a", "b", "c"], invert=True, num_oov_indices=0)(best)
    model = keras.Model(image, names)
    with pytest.raises(UnsupportedModelError, match="on your data") as refused:
        qdq.plan_placement(model)
    parts = split(model, refused.value)
    assert "front" not in parts
    classes = parts["core"].predict(RANDOM, verbose=0)
    assert [str(name) for name in np.ravel(parts["back"](classes).numpy().astype(str))] == [
        str(name) for name in model(RANDOM).numpy().astype(str)
    ]
    assert "scores/kernel" in {tensor.name for tensor in qdq.plan_placement(parts["core"]).tensors}


def test_nothing_but_tables_has_nothing_to_quantize():
    word = keras.Input((1,), dtype="string")
    model = keras.Model(word, layers.StringLookup(vocabulary=["a"])(word))
    with pytest.raises(UnsupportedModelError, match="Nothing is left"):
        qdq.plan_placement(model)


@pytest.mark.parametrize(
    "layer",
    [
        layers.Discretization([-1.0, 0.0, 0.5], output_mode="one_hot"),
        layers.Normalization(mean=0.5, variance=2.0),
        layers.CategoryEncoding(5, output_mode="multi_hot"),
    ],
    ids=lambda layer: type(layer).__name__,
)
def test_preprocessing_of_numbers_goes_the_whole_way(layer, tmp_path):
    encodes = isinstance(layer, layers.CategoryEncoding)
    value = keras.Input((2,), dtype="int64" if encodes else "float32")
    x = layers.Flatten()(layer(value))
    model = keras.Model(value, layers.Dense(3)(x))
    data = np.array([[0, 3], [1, 1], [4, 2], [2, 0]]) if encodes else RANDOM[:, :2]
    data = data if encodes else np.concatenate([data, np.array([[-1.0, 0.5], [0.0, 9.0]], "float32")])
    if isinstance(layer, layers.Discretization) and KERAS < (3, 14):  # which declares the shape of the input for it
        with pytest.raises(ValueError, match="incompatible with the layer"):
            model(data)
        return
    q_model = qdq.quantize_model(model, target="onnxruntime")
    qdq.calibrate(q_model, data, verbose=False)
    qdq.verify_onnx(qdq.export_onnx(q_model, tmp_path / "model.onnx").path, q_model, data).raise_if_failed()
