"""What TFMOT's guide and its users' published code show runs as printed there, but for the import."""

import tempfile

import keras
import numpy as np
import pytest
import tensorflow as tf

import qdq_workbench as qdq
import qdq_workbench.tfmot as tfmot  # noqa: PLR0402 - the line that users change
from qdq_workbench.errors import ExportError, SpecError
from qdq_workbench.quantizers import numerics

LastValueQuantizer = tfmot.quantization.keras.quantizers.LastValueQuantizer
MovingAverageQuantizer = tfmot.quantization.keras.quantizers.MovingAverageQuantizer
quantize_annotate_layer = tfmot.quantization.keras.quantize_annotate_layer
quantize_annotate_model = tfmot.quantization.keras.quantize_annotate_model
quantize_scope = tfmot.quantization.keras.quantize_scope
X = np.random.default_rng(0).normal(size=(32, 20)).astype(np.float32)


class DefaultDenseQuantizeConfig(tfmot.quantization.keras.QuantizeConfig):
    # Configure how to quantize weights.
    def get_weights_and_quantizers(self, layer):
        return [(layer.kernel, LastValueQuantizer(num_bits=8, symmetric=True, narrow_range=False, per_axis=False))]

    # Configure how to quantize activations.
    def get_activations_and_quantizers(self, layer):
        return [
            (layer.activation, MovingAverageQuantizer(num_bits=8, symmetric=False, narrow_range=False, per_axis=False))
        ]

    def set_quantize_weights(self, layer, quantize_weights):
        # Add this line for each item returned in `get_weights_and_quantizers`, in the same order
        layer.kernel = quantize_weights[0]

    def set_quantize_activations(self, layer, quantize_activations):
        layer.activation = quantize_activations[0]

    # Configure how to quantize outputs (may be equivalent to activations).
    def get_output_quantizers(self, layer):
        return []

    def get_config(self):
        return {}


class FourBitDenseQuantizeConfig(DefaultDenseQuantizeConfig):
    # Configure weights to quantize with 4-bit instead of 8-bits.
    def get_weights_and_quantizers(self, layer):
        return [(layer.kernel, LastValueQuantizer(num_bits=4, symmetric=True, narrow_range=False, per_axis=False))]


class NoActivationQuantizeConfig(DefaultDenseQuantizeConfig):
    def get_activations_and_quantizers(self, layer):
        # Skip quantizing activations.
        return []

    def set_quantize_activations(self, layer, quantize_activations):
        return


class FixedRangeQuantizer(tfmot.quantization.keras.quantizers.Quantizer):
    """Quantizer which forces outputs to be between -1 and 1."""

    def build(self, tensor_shape, name, layer):
        # Not needed. No new TensorFlow variables needed.
        return {}

    def __call__(self, inputs, training, weights, **kwargs):
        return tf.keras.backend.clip(inputs, -1.0, 1.0)

    def get_config(self):
        # Not needed. No __init__ parameters to serialize.
        return {}


class FixedRangeConfig(DefaultDenseQuantizeConfig):
    def get_weights_and_quantizers(self, layer):
        # Use custom algorithm defined in `FixedRangeQuantizer` instead of default Quantizer.
        return [(layer.kernel, FixedRangeQuantizer())]


class CustomLayer(tf.keras.layers.Dense):
    pass


# The documentation gives layers an `input_shape`; Keras 3 accepts it and says that an Input would be nicer.
pytestmark = pytest.mark.filterwarnings("ignore:Do not pass an .input_shape.*:UserWarning")


def apply_in_scope(layer, config):
    model = quantize_annotate_model(
        tf.keras.Sequential([quantize_annotate_layer(layer, config), tf.keras.layers.Flatten()])
    )
    # `quantize_apply` requires mentioning the config with `quantize_scope`
    with quantize_scope({type(config).__name__: type(config), "CustomLayer": CustomLayer}):
        # Use `quantize_apply` to actually make the model quantization aware.
        quant_aware_model = tfmot.quantization.keras.quantize_apply(model)
    quant_aware_model.summary(print_fn=lambda *_, **__: None)
    return quant_aware_model


def train(model):
    model.compile("adam", "mse")
    model.fit(X, np.zeros((32, 20), np.float32), epochs=2, verbose=0)
    return model


def test_whole_model():
    base_model = tf.keras.Sequential([tf.keras.layers.Dense(20, input_shape=[20]), tf.keras.layers.Flatten()])
    before = base_model.get_weights()
    quant_aware_model = tfmot.quantization.keras.quantize_model(base_model)
    train(quant_aware_model)
    for value, old in zip(base_model.get_weights(), before, strict=True):
        np.testing.assert_array_equal(value, old)
    assert not np.array_equal(quant_aware_model.wrappers[0].layer.kernel, before[0])


def test_some_layers_through_clone_model():
    base_model = tf.keras.Sequential([tf.keras.layers.Dense(20, input_shape=[20]), tf.keras.layers.Flatten()])

    def apply_quantization_to_dense(layer):
        if isinstance(layer, tf.keras.layers.Dense):
            return tfmot.quantization.keras.quantize_annotate_layer(layer)
        return layer

    annotated_model = tf.keras.models.clone_model(base_model, clone_function=apply_quantization_to_dense)
    quant_aware_model = tfmot.quantization.keras.quantize_apply(annotated_model)
    assert [layer.layer.name for layer in quant_aware_model.wrappers] == [base_model.layers[0].name]
    np.testing.assert_array_equal(quant_aware_model.wrappers[0].layer.kernel, base_model.layers[0].kernel)
    assert type(annotated_model.layers[0]).__name__ == "QuantizeAnnotate"  # as it was


def test_functional_and_sequential_examples():
    i = tf.keras.Input(shape=(20,))
    x = tfmot.quantization.keras.quantize_annotate_layer(tf.keras.layers.Dense(10))(i)
    o = tf.keras.layers.Flatten()(x)
    functional = tfmot.quantization.keras.quantize_apply(tf.keras.Model(inputs=i, outputs=o))
    annotated_model = tf.keras.Sequential(
        [
            tfmot.quantization.keras.quantize_annotate_layer(tf.keras.layers.Dense(20, input_shape=[20])),
            tf.keras.layers.Flatten(),
        ]
    )
    sequential = tfmot.quantization.keras.quantize_apply(annotated_model)
    assert len(functional.wrappers) == len(sequential.wrappers) == 1


def test_checkpoint_and_deserialize():
    base_model = tf.keras.Sequential([tf.keras.layers.Dense(20, input_shape=[20]), tf.keras.layers.Flatten()])
    quant_aware_model = train(tfmot.quantization.keras.quantize_model(base_model))
    with tempfile.NamedTemporaryFile(suffix=".keras") as file:
        quant_aware_model.save(file.name)
        with tfmot.quantization.keras.quantize_scope():
            loaded_model = tf.keras.models.load_model(file.name)
    np.testing.assert_array_equal(loaded_model(X), quant_aware_model(X))


def test_custom_layer():
    model = apply_in_scope(CustomLayer(20, input_shape=(20,)), DefaultDenseQuantizeConfig())
    assert isinstance(model.wrappers[0].layer, CustomLayer)
    assert isinstance(model.wrappers[0].quantize_config, DefaultDenseQuantizeConfig)


def test_four_bits():
    model = train(apply_in_scope(tf.keras.layers.Dense(20, input_shape=(20,)), FourBitDenseQuantizeConfig()))
    found = qdq.integer_weights(model)
    codes = next(tensor.codes for name, tensor in found.items() if name.endswith("/kernel"))
    assert codes.min() >= -8
    assert codes.max() <= 7
    assert len(np.unique(codes)) > 8


def test_parts_of_a_layer():
    with_activation = apply_in_scope(tf.keras.layers.Dense(20, input_shape=(20,)), DefaultDenseQuantizeConfig())
    without = apply_in_scope(tf.keras.layers.Dense(20, input_shape=(20,)), NoActivationQuantizeConfig())
    assert len(with_activation.activation_quantizers) == len(without.activation_quantizers) + 1 == 2


def test_custom_algorithm_trains_and_refuses_export(tmp_path):
    layer = tf.keras.layers.Dense(20, input_shape=(20,), kernel_initializer=keras.initializers.Constant(3.0))
    model = apply_in_scope(layer, FixedRangeConfig())
    ones = np.ones((1, 20), np.float32)
    model.activation_quantizers[-1].enabled.assign(False)
    np.testing.assert_allclose(model(ones), np.full((1, 20), 20.0))  # weights of 3 became 1
    model.wrappers[0].layer.kernel.assign(np.full((20, 20), 0.5))
    train(model)
    assert not np.array_equal(model.wrappers[0].layer.kernel, np.full((20, 20), 0.5))
    qdq.calibrate(model, X, verbose=False)
    with pytest.raises(ExportError, match="FixedRangeQuantizer"):
        qdq.export_onnx(model, tmp_path / "model.onnx")
    name = next(name for name in qdq.integer_weights(model) if name.endswith("/kernel"))
    assert isinstance(qdq.integer_weights(model)[name], np.ndarray)


def test_sigmoid_of_the_reference_page_is_quantized_before(tmp_path):
    """`quantize_annotate_layer(layers.Dense(2, activation='sigmoid'), quantize_config=...)`."""
    keras.utils.set_random_seed(0)
    model = quantize_annotate_model(
        keras.Sequential(
            [
                keras.layers.Dense(10, activation="relu", input_shape=(20,)),
                quantize_annotate_layer(
                    keras.layers.Dense(2, activation="sigmoid", name="last"),
                    quantize_config=DefaultDenseQuantizeConfig(),
                ),
            ]
        )
    )
    quantized_model = tfmot.quantization.keras.quantize_apply(model)
    assert "last_sigmoid" in [layer.name for layer in quantized_model.layers]
    tensors = {tensor.tensor for tensor in quantized_model.plan.tensors if tensor.kind == "activation"}
    assert "last" in tensors
    assert "last_sigmoid" not in tensors
    np.testing.assert_allclose(qdq.strip(quantized_model)(X), model(X), rtol=1e-6)
    qdq.calibrate(quantized_model, X, verbose=False)
    report = qdq.export_onnx(quantized_model, tmp_path / "model.onnx")
    qdq.verify_onnx(report.path, quantized_model, X).raise_if_failed()
    plain = keras.Sequential([keras.Input((20,)), keras.layers.Dense(2, activation="sigmoid", name="last")])
    spec = qdq.QuantizationSpec()
    spec.add("last", quantize_config=DefaultDenseQuantizeConfig())
    with pytest.raises(SpecError, match="before sigmoid"):
        qdq.plan_placement(plain, quantization_spec=spec)


def test_the_published_loop_recovers_the_integers():
    base = keras.Sequential(
        [keras.layers.Conv2D(4, 3, input_shape=(8, 8, 2), name="conv"), keras.layers.Flatten(), keras.layers.Dense(3)]
    )
    quant_aware_model = tfmot.quantization.keras.quantize_model(base)
    expected = qdq.integer_weights(quant_aware_model)
    recovered = {}
    for layer in quant_aware_model.layers:
        if hasattr(layer, "quantize_config"):
            for weight, quantizer, quantizer_vars in layer._weight_vars:
                quantized_and_dequantized = quantizer(inputs=weight, training=False, weights=quantizer_vars)
                min_var = quantizer_vars["min_var"]
                max_var = quantizer_vars["max_var"]
                assert np.all(np.asarray(min_var) <= 0)
                quantized = np.round(quantized_and_dequantized / max_var * (2 ** (8 - 1) - 1))
                recovered[f"{layer.layer.name}/{weight.name}"] = quantized
    assert len(recovered) == 2
    for name, codes in recovered.items():
        np.testing.assert_array_equal(codes, expected[name].codes)


@pytest.mark.parametrize("narrow", [False, True])
def test_the_published_loop_with_a_kept_range(narrow):
    class Config(DefaultDenseQuantizeConfig):
        def get_weights_and_quantizers(self, layer):
            return [(layer.kernel, LastValueQuantizer(num_bits=8, symmetric=True, narrow_range=narrow))]

    model = train(apply_in_scope(tf.keras.layers.Dense(20, input_shape=(20,)), Config()))
    weight, quantizer, quantizer_vars = model.wrappers[0]._weight_vars[0]
    low, high = (float(quantizer_vars[key].numpy()) for key in ("min_var", "max_var"))
    assert low == pytest.approx(-high * (1 if narrow else 256 / 254), rel=1e-6)
    scale = (high - low) / (254 if narrow else 255)  # TFMOT's own equation
    params = model.weight_qparams()[f"{model.wrappers[0].layer.name}/kernel"]
    assert float(params.scale) == pytest.approx(scale, rel=1e-6)
    np.testing.assert_array_equal(
        quantizer(weight, training=False, weights=quantizer_vars), numerics.fake_quantize(weight.numpy(), params)
    )
