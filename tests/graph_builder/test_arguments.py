"""Which argument of a call a tensor belongs to."""

import keras
import numpy as np
from keras import layers

import qdq_workbench as qdq
from qdq_workbench.conversion.engine.rebuild import Rebuilder
from qdq_workbench.graph_builder import bind_graph


class Sum(layers.Layer):
    """A layer of any number of tensors, with arguments by keyword behind them."""

    def call(self, x, *others, training=None):
        return sum(others, x)

    def compute_output_shape(self, shape, *_):
        return shape


class Block(layers.Layer):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.inner = layers.Dense(4, name="inner")

    def build(self, shape):
        self.inner.build(shape)

    def compute_output_shape(self, shape):
        return shape


class WithFurther(Block):
    def call(self, x, *others, training=None):
        return self.inner(sum(others, x))

    def compute_output_spec(self, x, *_, **__):
        return keras.KerasTensor(x.shape, dtype=x.dtype)


class WithLast(Block):
    def call(self, x, training=None, last=None):
        return self.inner(x) + last

    def compute_output_spec(self, x, *_, **__):
        return keras.KerasTensor(x.shape, dtype=x.dtype)


def inputs(count):
    return [keras.Input((4,), name=f"input_{number}") for number in range(count)]


def test_tensors_behind_the_named_arguments_are_not_named_after_keywords():
    given = inputs(4)
    graph = qdq.build_graph(keras.Model(given, Sum(name="sum")(*given)))
    assert graph.node("sum").arguments == ("x", "others", "others", "others")


def assert_entered(model, given):
    graph = qdq.build_graph(model)
    assert graph.blocks
    data = [np.full((2, 4), number + 1.0, np.float32) for number in range(len(given))]
    copy = Rebuilder(bind_graph(model)).rebuilt(model.name)
    np.testing.assert_allclose(copy(data), model(data), rtol=1e-6)


def test_a_composite_layer_gets_all_of_them_where_training_is_given():
    given = inputs(3)
    assert_entered(keras.Model(given, WithFurther(name="block")(*given, training=False)), given)


def test_a_tensor_behind_training_belongs_to_its_own_argument():
    given = inputs(2)
    assert_entered(keras.Model(given, WithLast(name="block")(given[0], None, given[1])), given)
