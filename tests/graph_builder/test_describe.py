import keras
import numpy as np
import pytest
from keras import layers, ops

from qdq_workbench.graph.op_kinds import INFINITE, ZEROS
from qdq_workbench.graph_builder.describe import describe, describe_layer, normalized_call
from qdq_workbench.graph_builder.references import TensorRef

X, Y, Z = (TensorRef(name) for name in "xyz")


def described(operation, *args, **kwargs):
    return describe(operation, "name", "path", (args, kwargs), ("out",))


def operation_of(tensor):
    return tensor._keras_history.operation


class TwoTensors(layers.Layer):
    def call(self, first, second, *others, scale=1.0, **more):
        return first


class TestArguments:
    def test_the_argument_of_every_tensor_at_any_depth(self):
        node = described(TwoTensors(), X, [Y, {"a": Z}])
        assert (node.inputs, node.arguments) == (("x", "y", "z"), ("first", "second", "second"))

    def test_further_positional_tensors_belong_to_the_last_name(self):
        assert described(TwoTensors(), X, Y, Z, X).arguments == ("first", "second", "others", "others")

    def test_keywords_have_their_names(self):
        node = described(TwoTensors(), X, scale=Y, extra=Z)
        assert dict(zip(node.inputs, node.arguments, strict=True)) == {"x": "first", "y": "scale", "z": "extra"}

    def test_tensors_of_one_argument_need_no_names(self):
        assert described(layers.Add(), [X, Y]).arguments == ()
        assert described(TwoTensors(), X, scale=2.0).arguments == ()
        assert described(TwoTensors(), [X, Y], 3).arguments == ()

    def test_operations_have_none(self):
        multiply = operation_of(ops.multiply(keras.Input((2,)), keras.Input((2,))))
        node = described(multiply, X, Y)
        assert (node.is_operation, node.arguments, node.weights, node.opaque) == (True, (), (), "")


class TestNormalizedCalls:
    def test_the_first_argument_of_a_layer_becomes_positional(self):
        layer = TwoTensors()
        assert normalized_call(layer, (), {"second": Y, "first": X}) == ((X,), {"second": Y})
        assert normalized_call(layer, (X,), {"second": Y}) == ((X,), {"second": Y})
        assert normalized_call(layer, (), {"second": Y}) == ((), {"second": Y})

    def test_operations_are_left_as_they_are(self):
        relu = operation_of(ops.relu(keras.Input((2,))))
        assert normalized_call(relu, (), {"x": X}) == ((), {"x": X})


class TestSettings:
    def test_they_are_plain_values(self):
        found = describe_layer(layers.Conv2D(2, 3, strides=(2, 1), activation="relu")).settings
        assert found["strides"] == [2, 1]
        assert (found["activation"], found["filters"], found["use_bias"]) == ("relu", 2, True)

    def test_zero_is_a_setting_and_none_is_not(self):
        assert describe_layer(layers.ReLU(threshold=0.0)).settings["threshold"] == 0.0
        assert "max_value" not in describe_layer(layers.ReLU()).settings

    def test_functions_and_layers_have_their_names(self):
        assert describe_layer(layers.Dense(1, activation=lambda x: x)).settings["activation"] == "<lambda>"
        assert describe_layer(layers.Dense(1, activation=layers.LeakyReLU())).settings["activation"] == "LeakyReLU"

    def test_other_objects_are_written_as_text(self):
        layer = layers.Dense(1)
        layer.alpha = 1 + 2j
        assert describe_layer(layer).settings["alpha"] == "(1+2j)"

    def test_a_scale_is_that_of_one_class_only(self):
        class CustomScaleLayer(layers.Layer):
            scale = 0.3

        class Other(CustomScaleLayer):
            pass

        assert describe_layer(CustomScaleLayer()).settings["scale"] == 0.3
        assert "scale" not in describe_layer(Other()).settings

    @pytest.mark.parametrize(
        ("shape", "axes", "expected"), [((5, 8), None, None), ((4, 5, 8), (1, 2), None), ((4, 5, 8), (2,), [2])]
    )
    def test_axes_of_attention_are_told_unless_they_are_all(self, shape, axes, expected):
        layer = layers.MultiHeadAttention(2, 4, attention_axes=axes)
        layer.build((None, *shape), (None, *shape))
        assert describe_layer(layer).settings.get("attention_axes") == expected

    def test_the_way_back_through_a_table(self):
        table = layers.ReversibleEmbedding(5, 4) if hasattr(layers, "ReversibleEmbedding") else layers.Embedding(5, 4)
        assert described(table, X, reverse=True).settings["reverse"] is True
        for call in ({}, {"reverse": False}, {"reverse": 1}):
            assert "reverse" not in described(table, X, **call).settings


class TestConstants:
    add = operation_of(ops.add(keras.Input((4,)), 1.0))

    @pytest.mark.parametrize(
        ("constant", "shape"), [(3, []), (2.5, []), (True, []), (np.ones((4, 1)), [4, 1]), (np.float32(1), [])]
    )
    def test_the_shape_of_the_one_constant(self, constant, shape):
        for args in ((X, constant), (constant, X)):
            assert described(self.add, *args).settings["constant_shape"] == shape

    @pytest.mark.parametrize("args", [(X, Y), (X,), (1, 2), (X, 1, 2), (X, "text"), (X, None)])
    def test_other_calls_have_none(self, args):
        assert "constant_shape" not in described(self.add, *args).settings

    def test_nor_have_calls_with_keywords_and_layers(self):
        assert "constant_shape" not in described(self.add, X, 3, y=1).settings
        assert "constant_shape" not in described(TwoTensors(), X, 3).settings

    def test_constants_among_joined_tensors(self):
        concatenate = operation_of(ops.concatenate([keras.Input((4,))] * 2))
        assert described(concatenate, [X, np.ones(2)]).settings["joins_constants"] is True
        assert "joins_constants" not in described(concatenate, [X, Y]).settings

    def test_operands_of_products(self):
        matmul = operation_of(ops.matmul(keras.Input((4, 4)), np.ones((4, 2), np.float32)))
        assert described(matmul, X, np.ones((4, 2))).settings["operands"] == [None, [4, 2]]
        assert described(matmul, X, None, 2.0).settings["operands"] == [None, []]
        assert "operands" not in described(matmul, X, Y).settings
        assert "operands" not in described(self.add, X, 3).settings


class TestZeros:
    def pad(self, mode="constant", width=((0, 0), (1, 2))):
        return operation_of(ops.pad(keras.Input((4,)), width, mode=mode))

    @pytest.mark.parametrize("value", [None, 0, 0.0, np.float32(0)])
    def test_how_many_are_added_to_each_axis(self, value):
        for node in (described(self.pad(), X, value), described(self.pad(), X, constant_values=value)):
            assert node.settings[ZEROS] == [[0, 0], [1, 2]]
        assert described(self.pad(), X).settings[ZEROS] == [[0, 0], [1, 2]]

    @pytest.mark.parametrize("value", [-np.inf, float("inf"), np.float32(-np.inf)])
    def test_infinity(self, value):
        settings = described(self.pad(), X, value).settings
        assert settings[INFINITE] is True
        assert ZEROS not in settings

    @pytest.mark.parametrize("value", [1, -2.0, Y])
    def test_other_values_are_neither(self, value):
        assert {ZEROS, INFINITE}.isdisjoint(described(self.pad(), X, value).settings)

    def test_other_ways_of_padding_and_other_operations_are_neither(self):
        assert {ZEROS, INFINITE}.isdisjoint(described(self.pad("reflect"), X).settings)

        class Pad(keras.Operation):
            mode, pad_width = "constant", ((0, 0),)

            def call(self, x):
                return x

        assert ZEROS not in described(Pad(), X).settings


class TestClasses:
    def test_parents_up_to_keras_own_base_class(self):
        class Mine(layers.Conv2D):
            pass

        node = describe_layer(Mine(1, 1))
        assert (node.class_name, node.bases[0]) == ("Mine", "Conv2D")
        assert {"Layer", "Operation", "object"}.isdisjoint(node.bases)

    def test_a_class_that_only_has_the_name_of_keras_is_no_parent(self):
        fake = type("Dense", (layers.Layer,), {})
        assert describe_layer(type("Mine", (fake,), {})()).bases == ()

    def test_why_the_inside_is_not_visible(self):
        class Mine(layers.Layer):
            pass

        class Known(Mine):
            _qdq_transparent = True

        class Sub(keras.Model):
            pass

        assert "of the user's own" in describe_layer(Mine()).opaque
        assert "a Lambda layer" in describe_layer(layers.Lambda(lambda x: x)).opaque
        assert "a subclassed model" in describe_layer(Sub()).opaque
        assert [describe_layer(layer).opaque for layer in (Known(), layers.Dense(1))] == ["", ""]

    def test_layers_inside_are_described_too(self):
        node = describe_layer(layers.TimeDistributed(layers.Dense(1, activation="relu")))
        assert [(part.name, part.class_name, part.settings["activation"]) for part in node.parts] == [
            ("layer", "Dense", "relu")
        ]

    def test_weights_have_shape_dtype_and_whether_they_are_trained(self):
        layer = layers.BatchNormalization()
        layer.build((None, 3))
        found = {
            weight.name: (weight.shape, weight.dtype, weight.trainable) for weight in describe_layer(layer).weights
        }
        assert found["gamma"] == ((3,), "float32", True)
        assert found["moving_mean"] == ((3,), "float32", False)
