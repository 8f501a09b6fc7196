"""The parts of `finetune` around the training: which samples are held out, the optimizer, the loss and the table."""

import argparse
from types import SimpleNamespace

import keras
import numpy as np
import pytest

from qdq_workbench.cli.finetune import _held_out, _loss, _optimizer, _parts, _table, _validation
from qdq_workbench.errors import DataError, QDQError

X = np.arange(20.0).reshape(10, 2)
Y = np.arange(10)


def options(**given):
    usual = {
        "data": "d.npz",
        "labels": None,
        "validation_data": None,
        "validation_split": None,
        "seed": 0,
        "loss": None,
    }
    return argparse.Namespace(**{**usual, **given})


@pytest.fixture
def file(tmp_path):
    def write(name="d.npz", **arrays):
        np.savez(tmp_path / name, **arrays)
        return str(tmp_path / name)

    return write


@pytest.mark.parametrize("names", [("x", "y"), ("x_train", "y_train")])
def test_the_test_part_of_a_file_validates_if_it_also_has_samples_to_train_on(file, names):
    path = file(**dict(zip(names, (X, Y), strict=True)), x_test=X + 1, y_test=Y + 1)

    x, y, (test_x, test_y) = _parts(options(data=path))

    for found, expected in ((x, X), (y, Y), (test_x, X + 1), (test_y, Y + 1)):
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("arrays", [{"x": X, "y": Y, "x_test": X}, {"x": X, "y": Y, "y_test": Y}, {"x": X, "y": Y}])
def test_half_a_test_part_is_none(file, arrays):
    assert _parts(options(data=file(**arrays)))[2] is None


def test_a_test_part_alone_is_trained_on(file):
    x, y, test_part = _parts(options(data=file(x_test=X, y_test=Y)))

    assert test_part is None
    np.testing.assert_array_equal(x, X)
    np.testing.assert_array_equal(y, Y)


def test_without_a_share_all_samples_are_trained_on(file):
    test_part = (X + 1, Y + 1)

    assert _held_out(X, Y, None, options()) == (X, Y, None)
    assert _held_out(X, Y, test_part, options())[2] is test_part
    path = file("v.npz", x=X + 2, y=Y + 2)
    x, y, (other_x, other_y) = _held_out(X, Y, test_part, options(validation_data=path))
    assert (x is X, y is Y) == (True, True)
    np.testing.assert_array_equal(other_x, X + 2)
    np.testing.assert_array_equal(other_y, Y + 2)


@pytest.mark.parametrize(("share", "count"), [(0.06, 1), (0.3, 3), (0.94, 9)])
def test_a_share_is_held_out_with_its_labels(share, count):
    x, y, (held_x, held_y) = _held_out(X, Y, (X, Y), options(validation_split=share))

    assert (len(x), len(y), len(held_x), len(held_y)) == (10 - count, 10 - count, count, count)
    assert sorted([*y, *held_y]) == list(Y)
    np.testing.assert_array_equal(x[:, 0], 2 * y)
    np.testing.assert_array_equal(held_x[:, 0], 2 * held_y)


def test_the_share_is_chosen_by_the_seed():
    first, again, other = (_held_out(X, Y, None, options(validation_split=0.4, seed=seed))[2][1] for seed in (0, 0, 1))

    np.testing.assert_array_equal(first, again)
    assert set(first) != set(other)
    assert list(first) != [0, 1, 2, 3]


def test_all_inputs_of_a_model_are_divided_alike():
    x, y, (held, held_y) = _held_out({"a": X, "b": -X}, Y, None, options(validation_split=0.5))

    for part, labels in ((x, y), (held, held_y)):
        np.testing.assert_array_equal(part["a"][:, 0], 2 * labels)
        np.testing.assert_array_equal(part["b"], -part["a"])


@pytest.mark.parametrize("share", [0.04, 0.96])
def test_a_share_leaves_samples_on_both_sides(share):
    with pytest.raises(DataError, match=f"no sample to train on.* Received: --validation-split {share} of 10 samples"):
        _held_out(X, Y, None, options(validation_split=share))


def test_validation_data_need_labels(file):
    path = file("v.npz", x=X)

    with pytest.raises(DataError, match=r"Validation data need labels.*v\.npz"):
        _validation(options(validation_data=path))


def test_validation_data_are_the_test_part_of_their_file(file):
    x, y = _validation(options(validation_data=file(x_train=X, y_train=Y, x_test=X[:2], y_test=Y[:2])))

    assert (len(x), len(y)) == (2, 2)


def test_an_optimizer_is_named_as_keras_does():
    made = _optimizer(options(optimizer="sgd", learning_rate=0.25))

    assert isinstance(made, keras.optimizers.SGD)
    assert float(made.learning_rate) == 0.25
    with pytest.raises(QDQError, match=r"no optimizer of that name\. Received: 'fast'"):
        _optimizer(options(optimizer="fast", learning_rate=0.25))


def test_a_model_with_several_outputs_needs_its_loss_named():
    several = SimpleNamespace(outputs=[1, 2])

    with pytest.raises(DataError, match=r"several outputs needs its loss named: give --loss\. Received: 2 outputs"):
        _loss(several, X, Y, options())


def figures(data):
    values = {"loss": 0.5, "accuracy": 0.25}
    return {
        "data": data,
        "float": values,
        "before": {**values, "loss": 1.5},
        "after": {"accuracy": 0.75, "loss": 1e-5},
    }


def test_the_table_has_a_row_for_each_model_and_a_column_for_each_figure():
    head, *_, first, second, third = _table(figures("validation")).splitlines()

    assert head.split() == ["on", "validation", "data", "accuracy", "loss"]
    assert first.split() == ["float,", "before", "training", "0.2500", "0.5000"]
    assert second.split() == ["quantized,", "before", "training", "0.2500", "1.5000"]
    assert third.split() == ["quantized,", "after", "training", "0.7500", "0.0000"]


def test_figures_of_samples_that_were_trained_on_are_said_to_be_so():
    assert "These samples were trained on. --validation-data FILE" in _table(figures("training"))
    assert "trained on" not in _table(figures("validation"))
