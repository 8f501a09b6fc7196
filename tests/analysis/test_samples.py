"""Reading data once into batches with labels: forms, what is refused, hashes, and halves."""

from types import SimpleNamespace

import keras
import numpy as np
import pytest

from qdq_workbench.analysis.samples import HashedBatches, Samples, read_for_inputs, read_samples, split_samples
from qdq_workbench.errors import DataError

X = np.arange(20, dtype=np.float32).reshape(10, 2)
Y = np.arange(10)


def takes(*names):
    """What is asked of a model to read data for it."""
    inputs = [keras.Input((2,), name=name) for name in names]
    return SimpleNamespace(name="net", inputs=inputs, _inputs_struct=inputs if len(inputs) > 1 else inputs[0])


ONE, TWO = takes("x"), takes("a", "b")


def read(data, batch_size=4, steps=None, model=ONE):
    return read_for_inputs(model, data, batch_size, steps)


def batches(*parts):
    """A generator function, which is no collection."""
    return lambda: iter(parts)


class Sequence(keras.utils.PyDataset):
    def __len__(self):
        return 2

    def __getitem__(self, index):
        return X[:3], Y[index : index + 3]


@pytest.mark.parametrize(
    ("data", "sizes", "labels"),
    [
        (X, [4, 4, 2], None),
        ((X, Y), [4, 4, 2], Y),
        ((X, Y, np.ones(10)), [4, 4, 2], Y),
        ([(X[:3], Y[:3]), (X[3:4], Y[3:4])], [3, 1], Y[:4]),
        ([X[:3], X[3:4]], [3, 1], None),
        (batches((X[:3], Y[:3], np.ones(3)), (X[3:5], Y[3:5], np.ones(2))), [3, 2], Y[:5]),
        (iter([(X[:3], Y[:3])]), [3], Y[:3]),
        (Sequence(), [3, 3], [0, 1, 2, 1, 2, 3]),
    ],
    ids=["array", "labelled", "weighted", "batches", "inputs", "function", "iterator", "dataset"],
)
def test_forms_of_data(data, sizes, labels):
    samples = read(data)

    assert [len(batch[0]) for batch in samples.batches] == sizes
    assert samples.count == sum(sizes)
    if labels is None:
        assert samples.labels is None
    else:
        np.testing.assert_array_equal(samples.labels, [labels])


def test_several_inputs_as_a_list_are_no_batches():
    samples = read([X, X + 1], model=TWO)
    labelled = read(({"a": X, "b": X + 1}, {"first": Y, "second": Y + 1}), model=TWO)

    assert [len(batch) for batch in samples.batches] == [2, 2, 2]
    np.testing.assert_array_equal(labelled.batches[2][1], X[8:] + 1)
    np.testing.assert_array_equal(labelled.labels, [Y, Y + 1])


def test_labels_end_with_the_last_batch_that_is_read():
    for data in ((X, Y), [(X[:4], Y[:4]), (X[4:8], Y[4:8]), (X[8:], Y[8:])]):
        samples = read(data, steps=2)
        assert samples.count == 8
        np.testing.assert_array_equal(samples.labels, [Y[:8]])
    assert read(X, steps=99).count == 10


def test_samples_are_returned_as_they_are():
    samples = Samples([[X]], None)

    assert read_samples(None, samples) is samples


@pytest.mark.parametrize("steps", [0, -1, 1.5, True])
def test_steps_are_a_count(steps):
    model = keras.Sequential([keras.Input((2,)), keras.layers.Identity()])

    with pytest.raises(DataError, match="steps"):
        read_samples(model, X, steps=steps)


@pytest.mark.parametrize(
    ("data", "says"),
    [
        ((X, Y[:9]), r"as many labels as samples for model 'net'. Received: 10 samples, labels of shape \(9,\)"),
        ((X, np.float32(1.0)), r"Received: 10 samples, labels of shape \(\)"),
        ([(X[:4], Y[:4]), X[4:]], "Some batches have labels and others have none"),
        ([X[4:], (X[:4], Y[:4])], "Some batches have labels and others have none"),
        ([(X[:4], Y[:4]), (X[4:], [Y[4:], Y[4:]])], "Some batches have labels and others have none"),
    ],
)
def test_labels_that_do_not_fit_are_refused(data, says):
    with pytest.raises(DataError, match=says):
        read(data)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_values_that_are_not_finite_are_counted_and_placed(bad):
    data = X.copy()
    data[5] = bad

    with pytest.raises(DataError, match=r"drop such samples\. Received: 2 values that are NaN or infinite in batch 1"):
        read(data)
    assert read(data, steps=1).count == 4, "what is not read does not count"


def test_equal_bytes_of_another_shape_or_type_are_other_data():
    def digest(array, labels=None):
        return Samples([[array]], None if labels is None else [labels]).digest()

    others = [X.reshape(5, 4), X.view(np.int32), X[:, ::-1], X + 1]
    assert len({digest(X), digest(X, Y), digest(X, Y + 1), *map(digest, others)}) == len(others) + 3
    assert digest(X) == digest(np.asfortranarray(X))


def test_samples_are_shared_if_all_their_inputs_are_equal():
    some = Samples([[X[:4], X[:4]], [X[4:6], X[4:6]]], None)
    other = Samples([[X[3:6], np.concatenate([X[3:5], X[:1]])]], None)

    assert some.shared_with(other) == 2
    assert some.shared_with(some) == 6
    for other in (X.view(np.int32), X[:, None]):
        assert some.shared_with(Samples([[other, other]], None)) == 0, "the bytes are equal"
    assert Samples([[X[[0, 0, 1]]]], None).shared_with(Samples([[X[:1]]], None)) == 2


def test_a_hash_of_batches_that_pass_by_knows_neither_order_nor_size_of_batches():
    def digest(*parts):
        hashed = HashedBatches([[part] for part in parts])
        assert [len(batch[0]) for batch in hashed] == [len(part) for part in parts]
        return hashed.digest()

    assert digest(X[:4], X[4:]) == digest(X[7:], X[:7]) == digest(X[::-1])
    assert len({digest(X), digest(X[:9]), digest(X, X[:1]), digest(X.astype(np.float64))}) == 4


def test_what_was_not_read_has_not_been_hashed():
    hashed = HashedBatches([[X[:4]], [X[4:]]])
    next(iter(hashed))

    whole = HashedBatches([[X[:4]]])
    list(whole)
    assert hashed.digest() == whole.digest()


@pytest.mark.parametrize("count", [2, 7, 10])
def test_halves_differ_by_one_sample_and_keep_their_labels(count):
    halves = split_samples(Samples([[X[:count][i : i + 1]] for i in range(count)], [Y[:count], -Y[:count]]))
    first, second = ([sample for batch in half.batches for sample in batch[0][:, 0]] for half in halves)

    assert len(first) - len(second) == count % 2
    assert sorted([*first, *second]) == list(X[:count, 0])
    for half, found in zip(halves, (first, second), strict=True):
        np.testing.assert_array_equal(half.labels[0], np.array(found) / 2)
        np.testing.assert_array_equal(half.labels[1], -half.labels[0])
        assert all(len(batch[0]) for batch in half.batches)


def test_halves_do_not_depend_on_the_batches_and_are_not_every_other_sample():
    whole, parts = split_samples(read(X, 10)), split_samples(read(X, 3))

    for one, other in zip(whole, parts, strict=True):
        np.testing.assert_array_equal(one.batches[0][0], np.concatenate([batch[0] for batch in other.batches]))
        assert one.labels is None
        assert set(np.diff(one.batches[0][0][:, 0])) != {4.0}
