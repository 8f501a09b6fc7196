"""A composite layer is traced anew where its attributes or arguments contain something else."""

import gc
import weakref

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers, ops

import qdq_workbench as qdq
from qdq_workbench.conversion.engine.rebuild import Rebuilder
from qdq_workbench.graph_builder import bind_graph
from qdq_workbench.graph_builder.contents import content
from qdq_workbench.graph_builder.trace import trace_call

X = np.random.default_rng(0).normal(size=(2, 1500)).astype(np.float32)
#: NumPy writes the first and the last elements of so large an array.
LARGE, OTHER = np.zeros(1500, np.float32), np.zeros(1500, np.float32)
OTHER[700] = 5


@keras.saving.register_keras_serializable("test_contents")
class Settled(layers.Layer):
    """A layer whose code reads attributes of all kinds."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.inner = layers.Dense(2, name="inner")
        self.listed, self.nested, self.shift = [1.0, 2.0], {"scales": (3.0, [4.0])}, np.zeros(1500, np.float32)
        self.function = ops.relu

    def build(self, shape):
        self.inner.build(shape)

    def call(self, x, shift=0.0):
        scale = self.listed[1] * self.nested["scales"][1][0]
        return self.function(self.inner(x * scale + self.shift + shift))


def copied(model):
    return Rebuilder(bind_graph(model)).rebuilt(model.name)


def assert_traced(model):
    assert qdq.build_graph(model).blocks
    np.testing.assert_allclose(copied(model)(X), model(X), rtol=1e-5, atol=1e-5)


def in_a_list(layer):
    layer.listed[1] = 7.0


def in_a_dictionary(layer):
    layer.nested["scales"][1][0] = 7.0


def in_an_array(layer):
    layer.shift[700] = 5


def another_array(layer):
    layer.shift = OTHER


def another_function(layer):
    layer.function = ops.tanh


@pytest.mark.parametrize("change", [in_a_list, in_a_dictionary, in_an_array, another_array, another_function])
def test_a_changed_attribute_is_read_again(change):
    x = keras.Input((1500,), name="x")
    model = keras.Model(x, Settled(name="settled")(x))
    assert_traced(model)
    before = np.asarray(model(X))
    change(model.get_layer("settled"))
    assert not np.allclose(model(X), before)
    assert_traced(model)


def keeps_results(layer):
    layer.scores = []
    layer.function = lambda x: layer.scores.append(ops.relu(x)) or layer.scores[-1]


def keeps_a_tensor_without_numbers(layer):
    layer.listed.append(tf.data.Dataset.range(3)._variant_tensor)


@pytest.mark.parametrize("change", [keeps_results, keeps_a_tensor_without_numbers])
def test_a_layer_that_changes_nothing_that_it_reads_is_traced_once(change):
    x, layer = keras.Input((1500,), name="x"), Settled(name="settled")
    change(layer)
    model = keras.Model(x, layer(x))
    qdq.build_graph(model)
    before = len(getattr(layer, "scores", ()))
    qdq.build_graph(model)
    assert len(getattr(layer, "scores", ())) == before


@pytest.mark.parametrize("kind", [np.asarray, tf.constant])
def test_two_calls_with_large_constants_are_told_apart(kind):
    x, layer = keras.Input((1500,), name="x"), Settled(name="settled")
    model = keras.Model(x, [layer(x, shift=kind(LARGE)), layer(x, shift=kind(OTHER))])
    for ours, theirs in zip(copied(model)(X), model(X), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-5)


@keras.saving.register_keras_serializable("test_contents")
class Decides(Settled):
    def call(self, x, training=None):
        return self.inner(x + (OTHER if training else LARGE))


def test_a_large_constant_of_training_alone_keeps_a_layer_whole():
    x = keras.Input((1500,), name="x")
    graph = qdq.build_graph(keras.Model(x, Decides(name="decides")(x)))
    assert not graph.blocks
    assert graph.node("decides").opaque


def test_an_unchanged_layer_is_traced_once(monkeypatch):
    x = keras.Input((1500,), name="x")
    model = keras.Model(x, Settled(name="settled")(x))
    first, second = bind_graph(model), bind_graph(model)
    monkeypatch.setattr("qdq_workbench.graph_builder.composites.trace_call", None)
    assert bind_graph(model).graph == first.graph == second.graph


def test_a_form_keeps_nothing_alive_and_equals_no_form_of_what_is_gone():
    class Thing:
        pass

    thing = Thing()
    form, again, gone = content([thing, {1, 2}]), content([thing, {1, 2}]), weakref.ref(thing)
    assert form == again
    del thing
    gc.collect()
    assert gone() is None
    assert form != again
    assert content(1) != content(True) != content(1.0)
    assert content(np.array(["a", None], object)) == content(np.array(["a", None], object))


def test_the_last_states_of_a_layer_are_remembered(monkeypatch):
    x = keras.Input((1500,), name="x")
    layer = Settled(name="settled")
    model = keras.Model(x, layer(x))
    traced = []

    def counted(*arguments):
        traced.append(layer.listed[1])
        return trace_call(*arguments)

    monkeypatch.setattr("qdq_workbench.graph_builder.composites.trace_call", counted)
    for scale in (3.0, 4.0, 5.0, 6.0, 7.0, 7.0, 5.0):
        layer.listed = [1.0, scale]
        bind_graph(model)

    assert traced == [3.0, 4.0, 5.0, 6.0, 7.0]


def test_arguments_behind_that_of_training_keep_their_values():
    class Staged(Settled):
        def call(self, x, training=None, other=None):
            return self.inner(x if other is None else x * other)

    x, layer = keras.Input((1500,), name="x"), Staged(name="staged")
    model = keras.Model(x, layer(x, None, ops.relu(x)))
    np.testing.assert_allclose(copied(model)(X), model(X), rtol=1e-5, atol=1e-5)
