"""In a graph, large weights are fake-quantized by a compiled function; it must give the very same values."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from qdq_workbench import WeightedBaseQuantizeWrapper, numerics
from qdq_workbench.spec import QuantizerSpec
from qdq_workbench.wrappers import weight_quantizers


@pytest.fixture
def layer():
    layer = keras.layers.Dense(256, use_bias=False, name="large")
    layer.build((None, 256))
    layer.kernel.assign(np.random.default_rng(0).normal(size=(256, 256)).astype("float32"))
    return layer


def identity_through(layer):
    """What the wrapper multiplies with: the product of the unit matrix and the quantized kernel."""
    wrapper = WeightedBaseQuantizeWrapper(layer, quantize_inputs=False)
    return tf.function(wrapper, autograph=False)(tf.eye(256)).numpy()


def test_the_values_are_those_of_numerics(layer):
    assert layer.kernel.shape[0] * layer.kernel.shape[1] >= weight_quantizers._WORTH_COMPILING
    kernel = np.asarray(layer.kernel)
    spec = QuantizerSpec(narrow_range=True, axis=1)
    expected = numerics.fake_quantize(kernel, numerics.qparams_from_range(*numerics.weight_range(kernel, spec), spec))
    np.testing.assert_array_equal(identity_through(layer), expected)


def test_compiled_or_not_makes_no_difference(layer, monkeypatch):
    compiled = identity_through(layer)
    monkeypatch.setattr(weight_quantizers, "_WORTH_COMPILING", 10**9)
    np.testing.assert_array_equal(identity_through(layer), compiled)


def test_nothing_is_compiled_for_one_eager_call(layer, monkeypatch):
    asked = []
    compute = weight_quantizers.fake_quantize_weight
    monkeypatch.setattr(
        weight_quantizers,
        "fake_quantize_weight",
        lambda weight, spec, *, jit: asked.append(jit) or compute(weight, spec, jit=jit),
    )
    wrapper = WeightedBaseQuantizeWrapper(layer, quantize_inputs=False)
    eager = wrapper(tf.eye(256)).numpy()
    assert asked == [False]
    np.testing.assert_array_equal(eager, identity_through(layer))
    assert True in asked


KERNEL, REST = "cell/kernel", "cell/recurrent_kernel"


class TestWrapper:
    """A wrapper by itself: one weight with a range of its own, one without."""

    @pytest.fixture
    def wrapper(self):
        specs = {KERNEL: QuantizerSpec(4), REST: QuantizerSpec(8)}
        methods = {KERNEL: {"name": "all_values", "settings": {}}}
        cell = keras.layers.SimpleRNN(2, use_bias=False)
        wrapper = WeightedBaseQuantizeWrapper(
            cell, weight_quantizers=specs, weight_methods=methods, quantize_inputs=False
        )
        wrapper(np.ones((1, 3, 2), np.float32))
        return wrapper

    def names(self, wrapper):
        return [name for name, _, _ in wrapper.weights_by_values()]

    def test_weights_without_a_state_depend_on_their_values_alone(self, wrapper):
        assert self.names(wrapper) == [REST]
        assert [wrapper.keeps_range(name) for name in (KERNEL, REST)] == [True, False]
        assert [wrapper.has_grid(name) for name in (KERNEL, REST)] == [True, True]
        wrapper.quantize_weights = False
        assert self.names(wrapper) == []

    def test_a_stored_range_stays_and_the_other_follows_its_values(self, wrapper):
        before = {name: wrapper.weight_range(name) for name in (KERNEL, REST)}
        for weight in wrapper.layer.trainable_weights:
            weight.assign(9 * weight)
        assert wrapper.weight_range(KERNEL) == before[KERNEL]
        assert wrapper.weight_range(REST)[1] == pytest.approx(9 * before[REST][1])
        wrapper.start_weight_ranges()
        assert wrapper.weight_range(KERNEL)[1] == pytest.approx(9 * before[KERNEL][1])

    def test_the_state_of_another_wrapper_is_taken_over(self, wrapper):
        other = WeightedBaseQuantizeWrapper.from_config(wrapper.get_config())
        other(np.ones((1, 3, 2), np.float32))
        other.start_weight_ranges(wrapper)
        assert other.weight_range(KERNEL) == wrapper.weight_range(KERNEL)
        other.start_weight_ranges()
        assert other.weight_range(KERNEL) != wrapper.weight_range(KERNEL)  # its own weights'

    def test_a_grid_is_kept_only_where_the_quantizer_keeps_one(self, wrapper):
        before = wrapper.weight_range(KERNEL)
        for name in (KERNEL, REST):
            wrapper.keep_grid(name, np.float32(7.0), np.int8(0))
        assert wrapper.weight_range(KERNEL) == before

    def test_switched_off_the_floats_are_used(self, wrapper):
        kernel = np.asarray(wrapper.layer.cell.kernel)
        for on in (True, False):
            wrapper.enabled.assign(on)
            used = {variable.name: np.asarray(value) for variable, value in wrapper._substitutes(None)}
            assert np.array_equal(used["kernel"], kernel) is not on
        for attribute, value in (("bypassed", True), ("quantize_weights", False), ("weight_quantizers", None)):
            before = getattr(wrapper, attribute)
            setattr(wrapper, attribute, value)
            assert wrapper._substitutes(None) == []
            setattr(wrapper, attribute, before)

    @pytest.mark.parametrize(
        ("training", "trainable", "moves"),
        [(True, True, True), (True, False, False), (False, True, False), (None, True, False)],
    )
    def test_a_stored_range_moves_in_training_of_a_trainable_wrapper(self, wrapper, training, trainable, moves):
        before = wrapper.weight_range(KERNEL)
        wrapper.layer.cell.kernel.assign(9 * wrapper.layer.cell.kernel)
        wrapper.trainable = trainable
        wrapper._substitutes(training)
        assert (wrapper.weight_range(KERNEL) != before) is moves

    def test_a_configuration_holds_what_is_its_own_alone(self, wrapper):
        assert wrapper._own_quantizers_config() == {"weight_methods": {KERNEL: {"name": "all_values", "settings": {}}}}
        plain = WeightedBaseQuantizeWrapper(keras.layers.Dense(2))
        assert plain._own_quantizers_config() == {}
        assert (plain.quantize_config, plain.kept_quantize_config) == (None, None)
