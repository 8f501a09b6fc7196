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
