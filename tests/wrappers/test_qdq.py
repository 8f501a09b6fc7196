"""The layer of a Q/DQ pair: switches, ranges, policies, training, saving, distribution."""

import json
import textwrap

import keras
import numpy as np
import pytest
import tensorflow as tf

from qdq_workbench import numerics
from qdq_workbench.errors import DataError, QuantizerError
from qdq_workbench.quantizers import (
    AllValuesQuantizer,
    FixedQuantizer,
    LastValueQuantizer,
    MovingAverageQuantizer,
)
from qdq_workbench.wrappers.qdq import QuantizeDequantize

RNG = np.random.default_rng(0)
X = RNG.normal(size=(20, 6, 6, 3)).astype(np.float32)
Y = RNG.normal(size=(20, 2)).astype(np.float32)
BATCH = X[:4]


def calibrated(low=-2.0, high=1.5, quantizer=None):
    """Return a built layer that has a range."""
    layer = QuantizeDequantize("relu1", quantizer or MovingAverageQuantizer())
    layer.build(X.shape)
    layer.set_range(low, high)
    return layer


def small_model(policy="float32"):
    """Return a convolution and a dense layer with a pair before each."""
    inputs = keras.Input(X.shape[1:])
    x = QuantizeDequantize("image", MovingAverageQuantizer(), name="pair_image", dtype=policy)(inputs)
    x = keras.layers.Conv2D(4, 3, activation="relu", dtype=policy)(x)
    quantizer = MovingAverageQuantizer(symmetric=False, signed=False)
    x = QuantizeDequantize("conv", quantizer, name="pair_conv", dtype=policy)(x)
    x = keras.layers.Flatten(dtype=policy)(x)
    return keras.Model(inputs, keras.layers.Dense(2, dtype=policy)(x))


def pairs(model):
    """Return the pairs of a model."""
    return [layer for layer in model.layers if isinstance(layer, QuantizeDequantize)]


class TestCall:
    def test_quantizes_with_the_range_it_is_given(self):
        layer = calibrated()
        expected = numerics.fake_quantize(BATCH, numerics.qparams_from_range(-2.0, 1.5, layer.spec))
        np.testing.assert_array_equal(layer(BATCH), expected)
        np.testing.assert_array_equal(tf.function(layer, autograph=False)(BATCH), expected)

    def test_passes_values_exactly_when_disabled(self):
        layer = calibrated()
        layer.enabled.assign(False)
        np.testing.assert_array_equal(layer(BATCH), BATCH)
        np.testing.assert_array_equal(layer(BATCH, training=True), BATCH)
        assert layer.range == (-2.0, 1.5)

    def test_passes_values_exactly_while_uncalibrated(self):
        layer = QuantizeDequantize("relu1", MovingAverageQuantizer())
        np.testing.assert_array_equal(layer(BATCH), BATCH)
        assert not layer.is_calibrated
        assert layer.range is None

    def test_disabled_passes_gradients_of_saturated_values_too(self):
        layer = calibrated(-0.1, 0.1)
        x = tf.constant(BATCH)
        for enabled in (True, False):
            layer.enabled.assign(enabled)
            with tf.GradientTape() as tape:
                tape.watch(x)
                y = layer(x)
            passed = tape.gradient(y, x).numpy() == 1.0
            assert passed.all() == (not enabled)

    def test_training_updates_the_range(self):
        layer = QuantizeDequantize("relu1", AllValuesQuantizer())
        layer(BATCH, training=True)
        assert layer.range == (float(BATCH.min()), float(BATCH.max()))

    @pytest.mark.parametrize("how", ["frozen", "trainable", "disabled", "fixed", "inference"])
    def test_training_leaves_the_range_alone(self, how):
        layer = calibrated(quantizer=FixedQuantizer(-2.0, 1.5) if how == "fixed" else LastValueQuantizer())
        if how == "frozen":
            layer.frozen.assign(True)
        if how == "disabled":
            layer.enabled.assign(False)
        layer.trainable = how != "trainable"
        layer(BATCH, training=how != "inference")
        assert layer.range == (-2.0, 1.5)

    def test_a_fixed_pair_has_its_range_from_the_start(self):
        layer = QuantizeDequantize("softmax", FixedQuantizer(0.0, 1.0, signed=False, symmetric=False))
        np.testing.assert_array_equal(layer(np.float32([2.0])), [1.0])
        assert layer.range == (0.0, 1.0)

    def test_switches_do_not_retrace(self):
        layer = calibrated(quantizer=LastValueQuantizer())
        traces = []

        @tf.function(autograph=False)
        def train(x):
            traces.append(1)
            return layer(x, training=True)

        params = numerics.qparams_from_range(BATCH.min(), BATCH.max(), layer.spec)
        np.testing.assert_array_equal(train(BATCH), numerics.fake_quantize(BATCH, params))
        layer.enabled.assign(False)
        np.testing.assert_array_equal(train(BATCH), BATCH)
        layer.enabled.assign(True)
        layer.frozen.assign(True)
        layer.set_range(-1.0, 1.0)
        params = numerics.qparams_from_range(-1.0, 1.0, layer.spec)
        np.testing.assert_array_equal(train(BATCH), numerics.fake_quantize(BATCH, params))
        assert layer.range == (-1.0, 1.0)
        assert len(traces) == 1

    @pytest.mark.parametrize("jit", [False, True])
    @pytest.mark.parametrize("policy", ["float32", "mixed_float16", "mixed_bfloat16"])
    @pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
    def test_keeps_dtype_and_values_under_every_policy(self, dtype, policy, jit):
        layer = QuantizeDequantize("relu1", LastValueQuantizer(), dtype=policy)
        layer.build(X.shape)
        layer.set_range(-2.0, 1.5)
        x = tf.cast(BATCH, dtype)
        y = tf.function(layer, jit_compile=jit, autograph=False)(x)
        params = numerics.qparams_from_range(-2.0, 1.5, layer.spec)
        assert y.dtype == x.dtype
        expected = numerics.fake_quantize(tf.cast(x, tf.float32).numpy(), params)
        np.testing.assert_array_equal(y, tf.cast(expected, dtype))
        assert {weight.dtype for weight in layer.weights} == {"float32", "bool"}

    @pytest.mark.parametrize("dtype", ["float32", "float16"])
    def test_output_spec_is_that_of_the_input(self, dtype):
        symbolic = keras.KerasTensor((None, 4, None), dtype=dtype)
        output = QuantizeDequantize("relu1", MovingAverageQuantizer())(symbolic)
        assert (output.shape, output.dtype) == ((None, 4, None), dtype)
        assert calibrated().compute_output_shape((None, 3)) == (None, 3)

    def test_dynamic_batch(self):
        layer = calibrated()
        traced = tf.function(layer, input_signature=[tf.TensorSpec((None, 6, 6, 3))], autograph=False)
        for size in (0, 1, 4):
            np.testing.assert_array_equal(traced(X[:size]), layer(X[:size]))

    def test_passes_masks_on(self):
        inputs = keras.Input((5,), dtype="int32")
        x = keras.layers.Embedding(10, 3, mask_zero=True)(inputs)
        plain = keras.layers.GlobalAveragePooling1D()(x)
        pair = QuantizeDequantize("embedding", AllValuesQuantizer(), name="pair")
        masked = keras.layers.GlobalAveragePooling1D()(pair(x))
        model = keras.Model(inputs, [plain, masked])
        first, second = model(np.array([[1, 2, 0, 0, 0]]))
        np.testing.assert_array_equal(first, second)

    def test_stateless_call_returns_the_new_range(self):
        layer = calibrated(quantizer=LastValueQuantizer())
        values = [variable.value for variable in layer.non_trainable_variables]
        _, updated = layer.stateless_call([], values, tf.constant(BATCH), training=True)
        assert layer.range == (-2.0, 1.5)
        assert float(BATCH.min()) in [float(value) for value in updated]


class TestRange:
    def test_set_range_per_axis(self):
        layer = calibrated([-1.0, -2.0, -3.0], [1.0, 1.0, 1.0], LastValueQuantizer(per_axis=True))
        np.testing.assert_array_equal(layer.range, ([-1.0, -2.0, -3.0], [1.0, 1.0, 1.0]))
        params = numerics.qparams_from_range(*layer.range, layer.spec)
        np.testing.assert_array_equal(layer(BATCH), numerics.fake_quantize(BATCH, params))

    @pytest.mark.parametrize("bounds", [(1.0, -1.0), (np.nan, 1.0), (0.0, np.inf), ([0.0, 0.0], [1.0, 1.0])])
    def test_set_range_refuses(self, bounds):
        with pytest.raises(DataError, match="'relu1'"):
            calibrated().set_range(*bounds)

    def test_set_range_needs_a_built_layer(self):
        with pytest.raises(QuantizerError, match="not built"):
            QuantizeDequantize("relu1", MovingAverageQuantizer()).set_range(0.0, 1.0)

    @pytest.mark.parametrize("arguments", [(None, MovingAverageQuantizer()), ("relu1", "minmax"), ("relu1", None)])
    def test_constructor_refuses(self, arguments):
        with pytest.raises(QuantizerError, match="Received: tensor="):
            QuantizeDequantize(*arguments)


class TestInModels:
    @pytest.mark.parametrize(
        ("policy", "jit"), [("float32", False), ("float32", True), ("mixed_float16", True), ("mixed_bfloat16", False)]
    )
    def test_fit_predict_save_and_load(self, policy, jit, tmp_path):
        model = small_model(policy)
        model.compile("sgd", "mse", jit_compile=jit)
        x, y = (X[:16], Y[:16]) if jit else (X, Y)  # XLA compiles all once more for a smaller last batch
        model.fit(x, y, batch_size=8, verbose=0)
        assert all(pair.is_calibrated for pair in pairs(model))
        before = model.predict(x, batch_size=8, verbose=0)

        model.save(tmp_path / "model.keras")
        loaded = keras.models.load_model(tmp_path / "model.keras")
        np.testing.assert_array_equal(loaded.predict(x, batch_size=8, verbose=0), before)
        assert [pair.range for pair in pairs(loaded)] == [pair.range for pair in pairs(model)]

        model.save_weights(tmp_path / "model.weights.h5")
        fresh = small_model(policy)
        fresh.load_weights(tmp_path / "model.weights.h5")
        assert [pair.range for pair in pairs(fresh)] == [pair.range for pair in pairs(model)]

    def test_frozen_ranges_stay_in_fit_and_weights_move(self):
        model = small_model()
        model.compile("sgd", "mse")
        for pair in pairs(model):
            pair.set_range(-1.0, 1.0)
            pair.frozen.assign(True)
        kernel = model.layers[2].kernel.numpy()
        model.fit(X, Y, verbose=0)
        assert [pair.range for pair in pairs(model)] == [(-1.0, 1.0)] * 2
        assert not np.array_equal(model.layers[2].kernel.numpy(), kernel)

    def test_switches_are_saved(self, tmp_path):
        model = small_model()
        pairs(model)[0].enabled.assign(False)
        pairs(model)[1].frozen.assign(True)
        model.save(tmp_path / "model.keras")
        first, second = pairs(keras.models.load_model(tmp_path / "model.keras"))
        assert (bool(first.enabled.numpy()), bool(first.frozen.numpy())) == (False, False)
        assert (bool(second.enabled.numpy()), bool(second.frozen.numpy())) == (True, True)

    def test_clones(self):
        model = small_model()
        clone = keras.models.clone_model(model)
        assert [pair.quantizer for pair in pairs(clone)] == [pair.quantizer for pair in pairs(model)]
        assert [pair.tensor for pair in pairs(clone)] == ["image", "conv"]

    def test_config_is_json(self):
        layer = calibrated()
        config = json.loads(json.dumps(layer.get_config()))
        again = QuantizeDequantize.from_config(config)
        assert again.tensor == "relu1"
        assert again.quantizer == layer.quantizer
        assert again.name == layer.name

    def test_switches_and_ranges_are_not_trained(self):
        assert calibrated().trainable_weights == []
        assert len(calibrated().non_trainable_weights) == 4


def test_trains_under_a_distribution_strategy(fresh):
    """Two replicas see different halves of a batch; the range covers both."""
    code = textwrap.dedent(
        """
        import keras, numpy as np, tensorflow as tf
        from qdq_workbench.quantizers import LastValueQuantizer
        from qdq_workbench.wrappers.qdq import QuantizeDequantize

        cpu = tf.config.list_physical_devices("CPU")[0]
        tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
        with tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"]).scope():
            inputs = keras.Input((1,))
            pair = QuantizeDequantize("input", LastValueQuantizer())
            model = keras.Model(inputs, keras.layers.Dense(1)(pair(inputs)))
            model.compile("sgd", "mse", jit_compile=False)
        x = np.array([[-1.0], [2.0], [-3.0], [6.0]], np.float32)
        model.fit(x, x, batch_size=4, shuffle=False, verbose=0)
        assert pair.range == (-3.0, 6.0), pair.range
        pair.enabled.assign(False)
        pair.frozen.assign(True)
        model.fit(x, x, batch_size=4, shuffle=False, verbose=0)
        assert pair.range == (-3.0, 6.0), pair.range
        """
    )
    done = fresh.run(code)
    assert done.returncode == 0, done.stderr[-3000:]
