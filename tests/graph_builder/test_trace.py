"""The calls that are found, and the reasons why a layer is not entered, by the tracer alone."""

import keras
import numpy as np
import pytest
from keras import layers, ops

from qdq_workbench.graph_builder.steps import CannotEnterError
from qdq_workbench.graph_builder.trace import _cause, _einsum_spec, _has_own_call, _snake_case, trace_call


def composite(call, build=None, **settings):
    """Return a built layer with a Dense inside, which computes a function of itself and its input."""

    class Own(layers.Layer):
        def __init__(self):
            super().__init__(**settings)
            self.dense = layers.Dense(4, name="inner")
            if build:
                build(self)

        def call(self, x, **kwargs):
            return call(self, x, **kwargs)

    layer = Own()
    layer.dense.build((None, 4))
    return layer


def traced(layer, x=None, **kwargs):
    x = keras.KerasTensor((None, 4)) if x is None else x
    outputs = [keras.KerasTensor((None, 4), dtype=layer.compute_dtype)]
    return trace_call(layer, (x,), kwargs, outputs)


def names(trace):
    return [step.name for step in trace.steps]


class TestSteps:
    def test_layers_have_their_paths_and_operations_their_numbers(self):
        def call(self, x):
            return layers.ReLU(name="made")(self.dense(x) + x) + self.dense(x + 1.0)

        assert names(traced(composite(call))) == ["dense", "add", "made", "add_1", "dense", "add_2"]

    def test_nothing_is_left_on_the_layers_inside(self):
        layer = composite(lambda self, x: self.dense(x))
        traced(layer)
        assert layer.dense._inbound_nodes == []
        assert "compute_output_spec" not in vars(layer.dense)

    def test_a_weight_that_is_read_twice_is_one_step(self):
        def build(self):
            self.scale = self.add_weight(name="scale", shape=(4,))

        found = traced(composite(lambda self, x: self.dense(x * self.scale) * (self.scale + 1.0), build))
        assert names(found).count("scale") == 1
        made = found.steps[names(found).index("size_computation")]
        assert made.args[0] == [found.inputs[0]]  # a layer needs an input, though this one measures nothing

    def test_a_tensor_of_sizes_is_a_step_with_what_it_measures(self):
        def call(self, x):
            return self.dense(x) + ops.cast(ops.shape(x)[0], "float32")

        found = traced(composite(call))
        assert names(found) == ["dense", "size_computation", "add"]
        measured = found.steps[1].args[0]
        assert measured == [found.inputs[0]]

    def test_a_result_that_depends_on_no_input_is_a_step_too(self):
        found = traced(composite(lambda self, x: ops.ones((2, 4))))
        assert names(found) == ["size_computation"]
        assert found.outputs[0] is found.steps[0].outputs[0]

    def test_only_what_the_result_needs_is_taken(self):
        def call(self, x):
            self.dense(x)
            return ops.relu(x)

        assert names(traced(composite(call))) == ["relu"]


class TestReasons:
    def refused(self, message, call, build=None, **settings):
        with pytest.raises(CannotEnterError, match=message):
            traced(composite(call, build, **settings))

    def test_masks_go_through_arguments(self):
        masked = layers.Masking()(keras.Input((3, 4)))
        with pytest.raises(CannotEnterError, match="a mask is propagated with its input or output"):
            traced(composite(lambda self, x: self.dense(x)), masked)
        self.refused("a mask is propagated with its output", lambda self, x: layers.Masking()(self.dense(x)))

    def test_losses_and_changes(self):
        self.refused("activity regularizer", lambda self, x: self.dense(x), activity_regularizer="l2")

        def count(self, x):
            self.count.assign(self.count + 1)
            return self.dense(x)

        self.refused(
            "changes variables by itself", count, lambda self: setattr(self, "count", self.add_weight(shape=()))
        )

    def test_layers_with_weights_are_attributes(self):
        def make(self, x):
            return layers.Dense(4)(x)

        self.refused(r"calls a layer that it does not hold as an attribute \(Dense\)|cannot be followed", make)
        assert names(traced(composite(lambda self, x: layers.Dropout(0.5, name="made")(x)))) == ["made"]

    def test_functions_have_an_inside(self):
        self.refused("calls Map with functions", lambda self, x: ops.map(lambda row: row * 2, x))

    def test_settings_are_numbers(self):
        self.refused("cannot be followed without values", lambda self, x: x if float(ops.sum(x)) > 0 else -x)

    def test_the_declared_results(self):
        self.refused("results are of another dtype", lambda self, x: ops.cast(x, "float16"))
        self.refused("returns something that depends on no input", lambda self, x: [self.dense(x), x])
        self.refused("returns something that depends on no input", lambda self, x: None)

    def test_an_error_of_the_code_is_told_in_one_line(self):
        def fail(self, x):
            raise KeyError("gamma\nmore")

        self.refused(r"cannot be followed without values \(KeyError: .*gamma", fail)


def test_the_cause_is_found_under_the_text_of_every_layer_around():
    inner = ValueError("Exception encountered.\n\n\x1b[1mthe cause\nand more\x1b[0m\n\nArguments: ...")
    outer = ValueError(f"Exception encountered.\n\n\x1b[1m{inner}\x1b[0m\n\nArguments: ...")
    for error in (inner, outer, ValueError("the cause\nand more")):
        assert _cause(error) == "ValueError: the cause"
    assert _cause(TypeError("x" * 300)) == f"TypeError: {'x' * 200}"


@pytest.mark.parametrize(
    ("name", "snake"),
    [("Add", "add"), ("GetItem", "get_item"), ("Conv2DTranspose", "conv2_dtranspose"), ("ReLU", "re_lu")],
)
def test_operations_are_numbered_by_their_class(name, snake):
    assert _snake_case(name) == snake


def test_a_call_of_its_own_behind_the_output_spec_of_a_parent():
    class Cached(layers.MultiHeadAttention):
        def call(self, *args, **kwargs):
            return super().call(*args, **kwargs)

    class Spec(Cached):
        def compute_output_spec(self, *args, **kwargs):
            return super().compute_output_spec(*args, **kwargs)

    class Plain(layers.Layer):
        def call(self, x):
            return x

    assert [_has_own_call(kind) for kind in (Cached, Spec, layers.MultiHeadAttention, Plain)] == [
        True,
        False,
        False,
        False,
    ]


def test_sizes_that_an_einsum_leaves_open_are_those_of_its_input():
    layer = layers.EinsumDense("abc,cd->abd", output_shape=(None, 5))
    layer.build((None, 7, 3))
    x = keras.KerasTensor((2, 7, 3), dtype="float32")
    assert layer.compute_output_spec(x).shape[1:] == (None, 5)  # the first size is open, too, in Keras before 3.13
    assert _einsum_spec(layer, x).shape == (2, 7, 5)
    assert _einsum_spec(layer, keras.KerasTensor((None, None, 3))).shape == (None, None, 5)
    any_rank = layers.EinsumDense("...c,cd->...d", output_shape=5)
    any_rank.build((None, 7, 3))
    assert _einsum_spec(any_rank, x).shape == any_rank.compute_output_spec(x).shape


def test_constants_beside_the_tensors_stay_where_they_are():
    def call(self, x):
        return ops.multiply(self.dense(x), np.float32([1, 2, 3, 4]))

    found = traced(composite(call))
    np.testing.assert_array_equal(found.steps[1].args[1], [1, 2, 3, 4])
