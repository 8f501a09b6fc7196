"""Progress bars know how many batches there will be, wherever the data do."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import qdq_workbench as qdq
from qdq_workbench.calibration.batches import batch_count, input_batches

X, Y = np.random.default_rng(0).normal(size=(50, 3)).astype("float32"), np.zeros(50)


class Batches(keras.utils.PyDataset):
    def __len__(self):
        return 5

    def __getitem__(self, index):
        return X[10 * index : 10 * index + 10], Y[:10]


def model_of(count):
    inputs = [keras.Input((3,), name=f"in_{index}") for index in range(count)]
    joined = keras.layers.Add(name="add")(inputs) if count > 1 else inputs[0]
    return keras.Model(inputs if count > 1 else inputs[0], keras.layers.Dense(2, name="head")(joined))


@pytest.mark.parametrize(
    ("inputs", "data", "expected"),
    [
        (1, X, 4),
        (1, (X, Y), 4),
        (1, {"in_0": X}, 4),
        (2, [X, X], 4),
        (2, {"in_0": X, "in_1": X}, 4),
        (1, ({"in_0": X}, Y), 4),
        (2, ([X, X], Y), 4),
        (2, ({"in_0": X, "in_1": X}, {"head": Y}, Y), 4),
        (2, ([X, X], [Y, Y]), 4),
        (1, [X[:25], X[25:]], 2),
        (1, ((X, Y), (X, Y)), 2),
        (2, ([X, X], [X, X]), 2),
        (2, ({"in_0": X, "in_1": X}, {"in_0": X, "in_1": X}), 2),
        (1, tf.data.Dataset.from_tensor_slices(X).batch(20), 3),
        (1, tf.data.Dataset.from_generator(lambda: iter([X]), output_signature=tf.TensorSpec([None, 3])), None),
        (1, Batches(), 5),
        (1, lambda: iter([X]), None),
    ],
    ids=["array", "labels", "dict", "arrays", "dict of two", "dict, labels", "arrays, labels",
         "dict of two, labels, weights", "as many labels", "batches", "labelled batches", "batches of two",
         "batches of dicts", "dataset", "generator dataset", "PyDataset",
         "function"],
)  # fmt: skip
def test_the_count_is_that_of_the_batches(inputs, data, expected):
    model = model_of(inputs)

    assert batch_count(model, data, 16) == expected
    assert expected in (None, sum(1 for _ in input_batches(model, data, 16)))


@pytest.mark.parametrize(("arguments", "shown"), [({}, "4/4"), ({"steps": 2}, "2/2"), ({"steps": 9}, "4/4")], ids=str)
def test_the_bar_of_calibrate_shows_it(arguments, shown, capsys):
    qdq.calibrate(qdq.quantize_model(model_of(1)), X, batch_size=16, **arguments)

    assert shown in capsys.readouterr().out


def test_a_dataset_that_does_not_know_its_length_is_read_with_a_bar(capsys):
    unknown = tf.data.Dataset.from_generator(lambda: iter([X]), output_signature=tf.TensorSpec([None, 3]))

    assert qdq.calibrate(qdq.quantize_model(model_of(1)), unknown).batches == 1
    assert "1/?" in capsys.readouterr().out
