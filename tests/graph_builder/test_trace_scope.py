import threading

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers, ops
from releases import KERAS

from qdq_workbench.graph_builder.between_layers import SizedReshape
from qdq_workbench.graph_builder.trace_scope import ReadsVariables, Runner, TraceScope, open_sizes


@pytest.fixture
def scope():
    with tf.Graph().as_default():
        yield TraceScope()


def test_a_size_and_a_variable_have_one_tensor_each(scope):
    x, y = keras.KerasTensor((None, None)), keras.KerasTensor((None, None))
    assert scope.size(x, 0) is scope.size(x, 0)
    assert len({id(scope.size(tensor, axis)) for tensor in (x, y) for axis in (0, 1)}) == 4
    assert (scope.axis_of(scope.size(y, 1)), scope.axis_of(scope.size(y, 0)), scope.axis_of(7)) == (1, 0, None)
    one, other = (keras.Variable(np.ones(2, np.float16), dtype="float16") for _ in range(2))
    assert scope.value(one) is scope.value(one)
    assert scope.value(one) is not scope.value(other)
    assert (scope.value(one).dtype, scope.value(one).shape) == (tf.float16, (2,))


class TestShapes:
    def test_open_sizes_of_symbolic_tensors_are_scalars_of_the_trace(self, scope):
        x = keras.KerasTensor((None, 5))
        with open_sizes(scope):
            assert ops.shape(x) == (scope.size(x, 0), 5)
            assert ops.shape(np.zeros((2, 3))) == (2, 3)
            assert keras.src.ops.shape(x)[0] is scope.size(x, 0)
        assert ops.shape(x) == (None, 5)

    def test_functions_are_restored_after_the_last_use_even_on_errors(self, scope):
        names = ("shape", "reshape", "einsum", "pad")
        before = {name: getattr(ops, name) for name in names}
        with pytest.raises(ZeroDivisionError), open_sizes(scope):
            with open_sizes(TraceScope()):
                assert ops.shape is not before["shape"]
            assert ops.shape is not before["shape"]
            assert ops.shape(keras.KerasTensor((None,)))[0] is scope.sizes[0][2]  # the outer trace again
            raise ZeroDivisionError
        assert {name: getattr(ops, name) for name in names} == before

    def test_another_thread_sees_keras_own_functions(self, scope):
        found = []
        with open_sizes(scope):
            x = keras.KerasTensor((None, 5))
            thread = threading.Thread(target=lambda: found.append((ops.shape(x), ops.reshape(x, (-1, 5, 1)).shape)))
            thread.start()
            thread.join()
        assert found == [((None, 5), (None, 5, 1))]


class TestReshape:
    """Which reshapes need their sizes at run time, and which follow from the known ones."""

    def reshaped(self, scope, shape, target):
        x = keras.KerasTensor(shape)
        with open_sizes(scope):
            result = ops.reshape(x, target(*ops.shape(x)))
        return result.shape, isinstance(result._keras_history.operation, SizedReshape)

    @pytest.mark.parametrize(
        ("shape", "target", "expected", "sized"),
        [
            ((None, 6), lambda b, c: (-1, 2, 3), (None, 2, 3), False),
            ((None, 6), lambda b, c: (None, 2, 3), (None, 2, 3), False),
            ((None, 6), lambda b, c: (b, 2, 3), (None, 2, 3), False),
            ((None, 6), lambda b, c: (b, 2, -1), (None, 2, 3), False),
            ((None, 6), lambda b, c: [b, -1], (None, 6), False),
            ((None, None, 6), lambda b, t, c: (b, t, 2, 3), (None, None, 2, 3), True),
            ((None, None, 6), lambda b, t, c: (b, t, 2, -1), (None, None, 2, 3), True),
            ((None, None, 6), lambda b, t, c: (t, b, -1), (None, None, None), True),
            ((None, None, 6), lambda b, t, c: (b * t, -1), (None, None), True),
            ((None, None, 6), lambda b, t, c: (b * t, 6), (None, 6), False),
            ((None, None, 6), lambda b, t, c: (b, -1), (None, None), True),
        ],
    )
    def test_symbolic(self, scope, shape, target, expected, sized):
        assert self.reshaped(scope, shape, target) == (expected, sized)

    def test_other_tensors_and_shapes_are_keras_business(self, scope):
        with open_sizes(scope):
            assert ops.reshape(np.zeros(6), (2, -1)).shape == (2, 3)
            assert ops.reshape(keras.KerasTensor((2, 3)), (6,)).shape == (6,)
            if KERAS >= (3, 14):  # from which on it takes a number
                assert ops.reshape(keras.KerasTensor((2, 3)), 6).shape == (6,)


def test_capital_letters_in_an_einsum_become_free_small_ones(scope):
    x, y = keras.KerasTensor((2, 3, 4)), keras.KerasTensor((4, 5))
    with open_sizes(scope):
        assert ops.einsum("abC,CD->abD", x, y).shape == (2, 3, 5)
        assert ops.einsum("abc,cd->abd", x, y).shape == (2, 3, 5)
    operation = ops.einsum("abc,cd->abd", x, y)._keras_history.operation
    assert operation.subscripts == "abc,cd->abd"


class TestSideEffects:
    def changes(self, act):
        with tf.Graph().as_default(), ReadsVariables(TraceScope()) as reads:
            act()
        return reads.changes

    def test_a_reading_program_has_none(self):
        variable = keras.Variable(np.ones(2))
        assert self.changes(lambda: ops.convert_to_tensor(variable) * 2) == ""

    def test_what_changes_variables_or_adds_losses_says_so(self):
        variable, layer = keras.Variable(np.ones(2)), layers.Layer()
        assert "changes variables by itself" in self.changes(lambda: variable.assign(np.zeros(2)))
        assert self.changes(lambda: layer.add_loss(tf.constant(1.0))) == "it adds to the loss"


class TestRunner:
    def test_it_casts_inputs_as_the_layer_does(self):
        for policy, autocast, expected in (("mixed_float16", True, "float16"), ("mixed_float16", False, "float32")):
            layer = layers.Dense(1, dtype=policy)
            layer.autocast = autocast
            runner = Runner(layer, lambda tensors: tensors[0].dtype)
            assert runner([keras.KerasTensor((2,))]) == []
            assert runner.result == expected

    @pytest.mark.parametrize("training", [True, False, None])
    def test_layers_inside_follow_the_mode(self, training):
        seen = []

        class Told(layers.Layer):
            def call(self, x, training=None):
                seen.append(training)
                return x

        inner = Told()
        Runner(layers.Dense(1), lambda tensors: inner(tensors[0]), training)([keras.KerasTensor((2,))])
        assert seen[-1] is training
