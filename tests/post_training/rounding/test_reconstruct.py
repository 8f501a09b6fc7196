"""The arithmetic of learning the rounding of a unit: errors, schedules, batches, drops and evaluations."""

import dataclasses
from types import SimpleNamespace

import keras
import numpy as np
import pytest
import tensorflow as tf

from qdq_workbench.graph.model_graph import Node
from qdq_workbench.post_training.rounding.reconstruct import (
    Evaluation,
    Settings,
    _batches,
    _beta,
    _Drops,
    _mean_counted,
    error_of,
    mask_name,
    probabilities_of,
)
from qdq_workbench.post_training.rounding.units import Unit

SETTINGS = Settings(steps=10, batch_size=4, learning_rate=0.01, penalty=0.1, drop=0.5, biases=False, seed=3)


def unit(*compared):
    return Unit((), (), compared, compared, ())


def test_settings_are_written_by_name():
    assert SETTINGS.to_dict() == {
        "steps": 10, "batch_size": 4, "learning_rate": 0.01, "penalty": 0.1, "drop": 0.5, "biases": False, "seed": 3,
    }  # fmt: skip


@pytest.mark.parametrize(("done", "beta"), [(0.0, 20.0), (0.2, 20.0), (0.5, 11.0), (0.8, 2.0), (1.0, 2.0)])
def test_beta_falls_between_a_fifth_and_four_fifths_of_the_steps(done, beta):
    assert float(_beta(tf.constant(done))) == pytest.approx(beta, rel=1e-5)


def test_batches_are_permutations_without_their_incomplete_last_batch():
    chosen = list(_batches(10, SETTINGS))

    assert [len(batch) for batch in chosen] == [4] * 10
    for first, second in zip(chosen[::2], chosen[1::2], strict=True):
        assert len({*first, *second}) == 8
    assert len({tuple(batch) for batch in chosen}) > 5
    halves = list(_batches(8, SETTINGS))
    assert all(len({*first, *second}) == 8 for first, second in zip(halves[::2], halves[1::2], strict=True))
    assert all((np.diff(batch) > 0).all() for batch in chosen), "in the order of the samples"


def test_batches_are_drawn_by_the_seed_and_never_larger_than_the_samples():
    again, other = (list(_batches(10, dataclasses.replace(SETTINGS, seed=seed))) for seed in (3, 4))

    assert np.array_equal(again, list(_batches(10, SETTINGS)))
    assert not np.array_equal(again, other)
    assert all(np.array_equal(batch, np.arange(3)) for batch in _batches(3, SETTINGS))
    assert {int(batch[0]) for batch in _batches(4, dataclasses.replace(SETTINGS, batch_size=1))} == {0, 1, 2, 3}


def test_every_value_is_mixed_by_itself():
    quantized, unquantized = tf.zeros((40, 50)), tf.ones((40, 50))
    drops = _Drops(dataclasses.replace(SETTINGS, drop=0.25), tf.constant(2))

    first, second = (drops.mixed(quantized, unquantized).numpy() for _ in range(2))

    assert 0.2 < first.mean() < 0.3
    assert (first != second).any(), "tensors of one step have their own numbers"
    again = _Drops(dataclasses.replace(SETTINGS, drop=0.25), tf.constant(2)).mixed(quantized, unquantized)
    np.testing.assert_array_equal(again, first)
    for other in (_Drops(dataclasses.replace(SETTINGS, drop=0.25, seed=4), 2), _Drops(SETTINGS, 3)):
        assert (other.mixed(quantized, unquantized).numpy() != first).any()


def test_integers_and_everything_without_drops_stay_quantized():
    tokens, values = tf.constant([1, 2]), tf.zeros(100)

    assert _Drops(SETTINGS, 0).mixed(tokens, tokens + 1) is tokens
    assert _Drops(dataclasses.replace(SETTINGS, drop=0.0), 0).mixed(values, values + 1) is values
    always = _Drops(dataclasses.replace(SETTINGS, drop=1.0), 0)
    np.testing.assert_array_equal(always.between(None, values + 1, values), np.ones(100))
    assert always.mixed(tf.zeros(2, tf.float16), tf.ones(2)).dtype == tf.float16


def test_the_mean_is_over_positions_that_the_mask_keeps():
    squares = tf.reshape(tf.range(12.0), (2, 3, 2))
    mask = tf.constant([[True, False, False], [True, True, False]])

    assert float(_mean_counted(squares, None)) == 5.5
    assert float(_mean_counted(squares, mask)) == pytest.approx(np.mean([0, 1, 6, 7, 8, 9]))
    assert float(_mean_counted(squares, tf.zeros((2, 3), tf.bool))) == 0.0
    assert float(_mean_counted(squares, tf.cast(mask, tf.int32))) == float(_mean_counted(squares, mask))
    hidden = tf.where(mask[..., None], squares, np.nan)
    assert float(_mean_counted(hidden, mask)) == float(_mean_counted(squares, mask)), "padding may be anything"


def test_errors_of_several_tensors_add_up():
    targets = {"a": np.zeros((2, 2), np.float64), "b": np.ones((2, 1), np.float32), "other": np.ones(1)}
    made = {"a": tf.constant([[1.0, 1.0], [1.0, 3.0]]), "b": tf.zeros((2, 1), tf.float16)}

    assert float(error_of(unit("a", "b"), (), targets, made)) == 4.0
    masked = {**targets, mask_name("a"): np.array([True, False])}
    assert float(error_of(unit("a", "b"), (), masked, made)) == 2.0


def test_probabilities_are_compared_as_logits():
    logits = np.random.default_rng(0).normal(size=(5, 4)).astype(np.float32)
    chances = tf.nn.softmax(logits)
    moved = tf.nn.softmax(logits + np.float32([1.0, 0.0, 0.0, -1.0]))

    assert float(error_of(unit("a"), ["a"], {"a": chances}, {"a": tf.nn.softmax(logits + 5.0)})) < 1e-10
    assert float(error_of(unit("a"), ["a"], {"a": chances}, {"a": moved})) == pytest.approx(0.5, rel=1e-4)
    assert float(error_of(unit("a"), [], {"a": chances}, {"a": moved})) < 0.1
    both = error_of(unit("a", "b"), ["a"], {"a": chances, "b": logits}, {"a": moved, "b": logits + 1.0})
    assert float(both) == pytest.approx(1.5, rel=1e-4), "b holds no probabilities"
    assert np.isfinite(float(error_of(unit("a"), ["a"], {"a": np.eye(4)}, {"a": tf.ones((4, 4)) / 4})))


def test_compared_outputs_of_a_softmax_are_known_by_their_layer():
    def call(name, class_name, **settings):
        node = Node(name, name, class_name, inputs=("x",), outputs=(name,), settings=settings)
        return SimpleNamespace(node=node, operation=None)

    calls = (
        call("chances", "Softmax"),
        call("head", "Dense", activation="softmax"),
        call("gate", "Dense", activation="sigmoid"),
        call("unread", "Softmax"),
    )
    section = Unit(calls, (), (), ("chances", "head", "gate"), ())

    assert probabilities_of(section) == {"chances", "head"}


@pytest.mark.parametrize("count", [1, 127, 128, 129, 257])
def test_an_evaluation_runs_over_all_samples(count):
    x = np.arange(2.0 * count, dtype=np.float32).reshape(count, 2)
    run = Evaluation(lambda values: {"sum": values["x"] + values["y"], "unread": values["x"]}, ["sum"])

    found = run({"x": x, "y": np.ones_like(x)})

    assert found.keys() == {"sum"}
    np.testing.assert_array_equal(found["sum"], x + 1)


def test_an_evaluation_is_traced_once_and_returns_masks():
    traced = []
    embedding = keras.layers.Embedding(5, 2, mask_zero=True)
    embedding.build((None, 3))

    def embed(values):
        traced.append(1)
        return {"table": embedding(values["tokens"])}

    run = Evaluation(embed, ["table"])
    tokens = np.array([[1, 2, 0], [3, 0, 0]])

    for given in (tokens, np.repeat(tokens, 100, axis=0)):
        found = run({"tokens": given})
        np.testing.assert_array_equal(found[mask_name("table")], given != 0)
        assert found["table"].shape == (*given.shape, 2)
    assert len(traced) == 1
