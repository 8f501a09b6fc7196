"""Data in every form become checked batches of inputs; progress bars know how many, wherever the data do."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import qdq_workbench as qdq
from qdq_workbench.calibration.batches import batch_count, has_labels, input_batches, named_inputs
from qdq_workbench.errors import DataError

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


NAMED = {"b": keras.Input((3,), name="second"), "a": keras.Input((2,), name="first")}


def model_of_a_dictionary():
    joined = keras.layers.Concatenate()(list(NAMED.values()))
    head = keras.layers.Dense(2, name="head")(joined)
    with pytest.warns(UserWarning, match="all keys in the dict must match the names"):
        return keras.Model(NAMED, head)


def read(model, data, size=16):
    """Return the shapes of the inputs in every batch."""
    return [[np.shape(array) for array in batch] for batch in input_batches(model, data, size)]


@pytest.mark.parametrize(
    ("inputs", "data"),
    [
        (1, X[:4]),
        (1, [X[:4]]),
        (1, iter([X[:4]])),
        (1, lambda: [X[:4]]),
        (1, [(X[:4],)]),
        (1, [({"in_0": X[:4]},)]),
        (1, [(X[:4], Y[:4])]),
        (1, [(X[:4], Y[:4], Y[:4])]),
        (1, [[X[:4], Y[:4]]]),
        (1, [{"in_0": X[:4]}]),
        (1, [({"in_0": X[:4]}, Y[:4])]),
        (2, [[X[:4], X[:4]]]),
        (2, [(X[:4], X[:4])]),
        (2, [([X[:4], X[:4]], Y[:4])]),
        (2, [[[X[:4], X[:4]], Y[:4]]]),
        (2, [({"in_1": X[:4], "in_0": X[:4]}, {"head": Y[:4]})]),
    ],
)
def test_labels_are_left_out_in_every_form_of_a_batch(inputs, data):
    assert read(model_of(inputs), data) == [[(4, 3)] * inputs]


def test_inputs_come_in_the_order_of_the_model_by_key_or_by_name():
    model = model_of_a_dictionary()
    x = {"a": X[:4, :2], "b": X[:4]}
    order = [(4, 2), (4, 3)]
    assert [tensor.name for tensor in model.inputs] == ["first", "second"]
    assert (
        read(model, x)
        == read(model, [x])
        == read(model, [[x["a"], x["b"]]])
        == read(model, {"first": x["a"], "second": x["b"]})
        == [order]
    )
    assert read(model, {**x, "more": Y}) == [order]
    with pytest.raises(DataError, match=r"a dictionary with the keys \['a', 'b'\].*Received: \['a'\]"):
        read(model, {"a": X})
    with pytest.raises(DataError, match=r"lack the input 'in_1'; .*\['in_0', 'in_1'\]"):
        read(model_of(2), {"in_0": X})


def test_two_tensors_of_the_rank_of_the_inputs_are_inputs_and_others_are_labels():
    two = model_of(2)
    assert read(two, [(X[:4], X[:4])]) == [[(4, 3)] * 2]
    with pytest.raises(DataError, match=r"The model has 2 inputs .*Received: a batch with 1"):
        read(two, [(X[:4], Y[:4])])
    assert has_labels(model_of(1), (X, Y))
    assert not has_labels(two, (X, X))
    assert not has_labels(model_of(1), [X])


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (None, "Calibration needs data"),
        ("images", "Calibration needs data"),
        ([], "not a single batch could be read"),
        (X[:0], "not a single batch could be read.*Received: ndarray of length 0"),
        (5, "The data cannot be read.*Received: int"),
        (np.float32(3), r"a single number.*Received: shape \(\)"),
        ([X[:4, :2]], r"Batch 0 does not fit input 'in_0': its shape must be \(None, 3\).*Received: shape \(4, 2\)"),
        ([X[:4], X[0]], r"Batch 1 does not fit .*Received: shape \(3,\)"),
        ([X[:0]], r"Batch 0 of input 'in_0' is empty.*Received: shape \(0, 3\)"),
        ([X[:4].astype("complex64")], "does not hold real numbers.*Received: dtype complex64"),
        ([np.array([["a", "b", "c"]])], "does not hold real numbers"),
        ([[[1.0, 2.0, 3.0], [1.0]]], "has 1 inputs.*Received: a batch with 2"),
        ([tf.sparse.from_dense(X[:4])], "must be a dense array.*Received: SparseTensor"),
        ([tf.ragged.constant([[1.0], [1.0, 2.0]])], r"to_tensor\(\).*Received: RaggedTensor"),
        ([{"in_0": [[1.0], [1.0, 2.0]]}], "must be an array of samples of one size.*whose parts differ in size"),
    ],
)
def test_what_cannot_be_read_is_refused_with_what_was_given(data, says):
    with pytest.raises(DataError, match=says):
        read(model_of(1), data)


def test_inputs_with_other_numbers_of_samples_are_refused():
    for data in ([X[:4], X[:5]], [[X[:4], X[:5]]]):
        with pytest.raises(DataError, match="All inputs must have as many samples"):
            read(model_of(2), data)
    # A table that is the same for all samples has a fixed number of rows.
    image, table = keras.Input((3,), name="image"), keras.Input(batch_shape=(3, 2), name="table")
    model = keras.Model([image, table], keras.ops.matmul(image, table))
    assert read(model, [[X[:4], X[:3, :2]]]) == [[(4, 3), (3, 2)]]


@pytest.mark.parametrize("size", [0, -1, 2.5, True, "8"])
def test_a_batch_has_a_whole_number_of_samples(size):
    for function in (batch_count, read):
        with pytest.raises(DataError, match="batch_size must be an integer from 1 on"):
            function(model_of(1), X, size)


@pytest.mark.parametrize("dtype", ["bool", "uint8", "int64", "float16", "float64"])
def test_real_numbers_of_every_type_are_read(dtype):
    assert read(model_of(1), X[:4].astype(dtype)) == [[(4, 3)]]


def test_a_file_is_read_as_a_model_with_its_inputs():
    file = named_inputs({"image": (None, 3), "mask": (None, 2)})
    assert read(file, {"mask": X[:4, :2], "image": X[:4]}) == [[(4, 3), (4, 2)]]
    with pytest.raises(DataError, match="lack the input 'mask'"):
        read(file, {"image": X})


def test_an_axis_of_open_size_takes_any():
    x = keras.Input((None, 3), name="x")
    model = keras.Model(x, keras.layers.Dense(2, name="head")(x))
    assert read(model, [X[None, :4], X[None, :7]]) == [[(1, 4, 3)], [(1, 7, 3)]]


def test_the_last_batch_holds_what_is_left():
    assert read(model_of(1), X, 20) == [[(20, 3)], [(20, 3)], [(10, 3)]]
    rows = np.concatenate([batch[0] for batch in input_batches(model_of(1), X, 20)])
    np.testing.assert_array_equal(rows, X)
