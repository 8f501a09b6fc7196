import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers

from qdq_workbench.graph_builder.between_layers import COMPUTE, OwnWeight, SizeComputation, SizedReshape


def again(layer):
    """Return what a layer becomes through a file."""
    return keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(layer))


class TestOwnWeight:
    def make(self, dtype="float32", policy="float32", **rules):
        variable = keras.Variable(np.ones((2, 3)), dtype=dtype, name="token", trainable=rules.pop("trainable", True))
        variable.regularizer, variable.constraint = rules.get("regularizer"), rules.get("constraint")
        return variable, OwnWeight.of(variable, "own", policy)

    def test_it_returns_the_variable_itself_not_a_copy(self):
        variable, layer = self.make()
        assert layer.weight is variable
        variable.assign(np.full((2, 3), 7.0))
        np.testing.assert_array_equal(layer(np.zeros(1)), np.full((2, 3), 7.0))
        assert tf.is_tensor(layer(np.zeros(1)))

    def test_a_copy_makes_one_of_the_same_form(self):
        variable, layer = self.make(
            trainable=False, regularizer=keras.regularizers.L2(0.5), constraint=keras.constraints.NonNeg()
        )
        copy = again(layer)
        copy(np.zeros(1))
        assert (copy.weight.name, tuple(copy.weight.shape), copy.weight.trainable) == ("token", (2, 3), False)
        assert copy.weight is not variable
        assert copy.weight.regularizer.l2 == 0.5
        assert isinstance(copy.weight.constraint, keras.constraints.NonNeg)
        assert copy.get_config() == layer.get_config()
        assert again(self.make()[1]).get_config()["regularizer"] is None

    @pytest.mark.parametrize(("dtype", "expected"), [("float32", "float16"), ("int32", "int32")])
    def test_floats_are_cast_by_the_policy(self, dtype, expected):
        layer = self.make(dtype, "mixed_float16")[1]
        spec = layer.compute_output_spec(keras.KerasTensor((1,)))
        assert (spec.dtype, tuple(spec.shape)) == (expected, (2, 3))


def constant(value, dtype="int32"):
    array = np.asarray(value)
    return {"op": "Const", "value": array.tolist(), "dtype": dtype, "shape": list(array.shape)}


def add(one, other):
    return {"op": "AddV2", "inputs": {"x": one, "y": other}, "attributes": {}}


class TestSizeComputation:
    def test_sizes_weights_and_steps_have_their_numbers(self):
        stack = {"op": "Pack", "inputs": {"values": ["size 0", "size 1", "step 0:0"]}, "attributes": {"axis": 0}}
        layer = SizeComputation([constant(7), stack], "step 1:0", [[0, 1], [1, 0]], [3], "int32")
        np.testing.assert_array_equal(layer([np.zeros((2, 5)), np.zeros((4, 1))]), [5, 4, 7])
        weighted = SizeComputation([add("weight 1", "weight 0")], "step 0:0", [], None, "float32")
        np.testing.assert_array_equal(weighted([np.zeros(1)], weights=[np.float32([1]), np.float32([2])]), [3])

    def test_one_of_several_results(self):
        step = {"op": "Mean", "inputs": {"input": "weight 0", "axis": "step 0:0"}, "attributes": {"keep_dims": True}}
        layer = SizeComputation([constant([0]), step], "step 1:0", [], [1], "float32")
        np.testing.assert_array_equal(layer(np.zeros(1), weights=[np.float32([1, 3])]), [2])

    def test_half_precision_follows_the_policy_of_the_copy(self):
        cast = {"op": "Cast", "inputs": {"x": "size 0"}, "attributes": {"DstT": {"dtype": COMPUTE}}}
        for policy in ("float32", "mixed_float16"):
            layer = SizeComputation(
                [cast, constant(1.5, COMPUTE), add("step 0:0", "step 1:0")],
                "step 2:0",
                [[0, 0]],
                [],
                COMPUTE,
                dtype=policy,
            )
            found = layer([np.zeros((2, 1), np.float32)])
            assert (found.dtype.name, float(found)) == (layer.compute_dtype, 3.5)
            assert layer.compute_output_spec([]).dtype == layer.compute_dtype
            assert again(layer).get_config() == layer.get_config()

    def test_only_pure_operations_are_held(self):
        for operations in (["PyFunc"], ["ReadFile", "AddV2", "EagerPyFunc"]):
            steps = [{"op": op, "inputs": {}, "attributes": {}} for op in operations]
            with pytest.raises(
                ValueError, match=f"pure operations only. Received: {', '.join(sorted(set(operations) - {'AddV2'}))}$"
            ):
                SizeComputation(steps, "step 0:0", [], None, "float32")

    def test_open_axes_of_the_result_stay_open(self):
        layer = SizeComputation(
            [
                {
                    "op": "Range",
                    "inputs": {"start": "step 0:0", "limit": "size 0", "delta": "step 1:0"},
                    "attributes": {},
                }
            ],
            "step 0:0",
            [[0, 0]],
            [None],
            "int32",
        )
        assert layer.compute_output_spec([]).shape == (None,)
        assert layer.autocast is False


class TestSizedReshape:
    def test_it_takes_the_whole_new_shape(self):
        layer = SizedReshape((None, 3, None))
        assert layer(np.arange(12.0), sizes=tf.constant([2, 3, 2])).shape == (2, 3, 2)
        spec = layer.compute_output_spec(keras.KerasTensor((12,), dtype="float16"), None)
        assert (tuple(spec.shape), spec.dtype) == ((None, 3, None), "float16")

    def test_it_keeps_the_dtype_and_goes_through_a_file(self):
        layer = again(SizedReshape((2, 2), dtype="mixed_float16", name="mine"))
        assert (layer.autocast, layer.name, tuple(layer.target_shape)) == (False, "mine", (2, 2))
        assert layer(np.zeros(4, np.float32), sizes=tf.constant([2, 2])).dtype == tf.float32
        assert isinstance(layer, layers.Reshape)
