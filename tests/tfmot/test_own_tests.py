"""What TFMOT's own tests rely on, but for the import: `quantize_test.py` and `quantize_models_test.py`."""

import keras
import numpy as np
import pytest
from keras import layers

import qdq_workbench as qdq
import qdq_workbench.tfmot as tfmot  # noqa: PLR0402 - the line that users change
from qdq_workbench.errors import SpecError

quantizers = tfmot.quantization.keras.quantizers
quantize_annotate_layer = tfmot.quantization.keras.quantize_annotate_layer
quantize_apply = tfmot.quantization.keras.quantize_apply


def dense_model():
    keras.utils.set_random_seed(0)
    parts = [layers.Dense(3, activation="relu", name="a"), layers.Dense(2, activation="softmax", name="b")]
    return keras.Sequential([keras.Input((4,)), *parts])


@pytest.mark.parametrize(("prefix", "names"), [("q_", ["q_a", "q_b"]), ("", ["a", "b"]), (None, ["a", "b"])])
def test_the_prefix_of_quantized_layers(prefix, names, tmp_path):
    x = np.random.default_rng(0).normal(size=(16, 4)).astype("float32")
    q_model = tfmot.quantization.keras.quantize_model(dense_model(), quantized_layer_name_prefix=prefix)
    assert [wrapper.name for wrapper in q_model.wrappers] == names
    qdq.calibrate(q_model, x, verbose=False)
    q_model.save(tmp_path / "q.keras")
    loaded = qdq.load_model(tmp_path / "q.keras")
    np.testing.assert_array_equal(loaded(x), q_model(x))
    assert [wrapper.name for wrapper in qdq.retarget(loaded, "tensorrt").wrappers] == names
    qdq.verify_onnx(qdq.export_onnx(loaded, tmp_path / "q.onnx").path, loaded, x).raise_if_failed()


def test_the_prefix_by_position_and_what_is_none():
    assert [w.name for w in tfmot.quantize_model(dense_model(), "my_").wrappers] == ["my_a", "my_b"]
    for prefix in (3, "a/b"):
        with pytest.raises(SpecError, match="must be a text without a slash"):
            tfmot.quantize_model(dense_model(), quantized_layer_name_prefix=prefix)


def test_lambda_layers_stay_in_float_with_a_warning():
    inner = [layers.Dense(3, name="a"), layers.Lambda(lambda x: x * 2.0, name="twice"), layers.Dense(2, name="b")]
    model = keras.Sequential([keras.Input((4,)), *inner])
    with pytest.warns(UserWarning, match="Lambda layer 'twice' is not annotated"):
        q_model = tfmot.quantize_model(model)
    assert [wrapper.name for wrapper in q_model.wrappers] == ["quant_a", "quant_b"]
    annotated = keras.Sequential([keras.Input((4,)), quantize_annotate_layer(layers.Lambda(lambda x: x, name="own"))])
    with pytest.raises(SpecError, match="Lambda"):
        quantize_apply(annotated)  # marked by hand, it needs a config
    q_model.quantization_enabled = False
    x = np.ones((2, 4), "float32")
    np.testing.assert_array_equal(q_model(x), model(x))


class CustomConvLayer(keras.layers.Layer):
    def __init__(self, name=None, **kwargs):
        super().__init__(name=name, **kwargs)
        self.conv1 = keras.layers.Conv2D(2, 2)

    def build(self, input_shape):
        self.conv1.build(input_shape)

    def call(self, inputs):
        return self.conv1(inputs)

    def get_config(self):
        return {"name": self.name}


class CustomConvQuantizeConfig(tfmot.quantization.keras.QuantizeConfig):
    def get_weights_and_quantizers(self, layer):
        quantizer = quantizers.LastValueQuantizer(num_bits=8, symmetric=True, narrow_range=False, per_axis=False)
        return [(layer.conv1.kernel, quantizer)]

    def get_activations_and_quantizers(self, layer):
        return []

    def set_quantize_weights(self, layer, quantize_weights):
        layer.conv1.kernel = quantize_weights[0]

    def set_quantize_activations(self, layer, quantize_activations):
        pass

    def get_output_quantizers(self, layer):
        return []

    def get_config(self):
        return {}


def quantized_with(config, layer):
    model = keras.Sequential([keras.Input((8, 8, 3)), layer])
    annotated = keras.models.clone_model(model, clone_function=lambda part: quantize_annotate_layer(part, config))
    annotated.set_weights(model.get_weights())
    with tfmot.quantize_scope({type(config).__name__: type(config), type(layer).__name__: type(layer)}):
        return model, quantize_apply(annotated)


def test_the_order_of_trainable_weights_is_kept():
    model, q_model = quantized_with(CustomConvQuantizeConfig(), CustomConvLayer(name="custom_conv_layer"))
    assert [pair.name for pair in q_model.plan.tensors if pair.kind == "weight"] == ["custom_conv_layer/conv1/kernel"]
    pairs = list(zip(model.trainable_weights, q_model.trainable_weights, strict=True))
    for ours, theirs in pairs:
        assert ours is not theirs
        np.testing.assert_array_equal(ours, theirs)


class Blocks(CustomConvLayer):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.blocks = [keras.layers.Dense(2), keras.layers.Dense(2)]

    def build(self, input_shape):
        super().build(input_shape)
        for block in self.blocks:
            block.build((None, None, None, 2))

    def call(self, inputs):
        hidden = self.conv1(inputs)
        for block in self.blocks:
            hidden = block(hidden)
        return hidden


class BlocksConfig(CustomConvQuantizeConfig):
    def get_weights_and_quantizers(self, layer):
        quantizer = super().get_weights_and_quantizers(layer)[0][1]
        return [(block.kernel, quantizer) for block in layer.blocks]

    def set_quantize_weights(self, layer, quantize_weights):
        for block, weight in zip(layer.blocks, quantize_weights, strict=True):
            block.kernel = weight


class SwappedConfig(BlocksConfig):
    def set_quantize_weights(self, layer, quantize_weights):
        super().set_quantize_weights(layer, quantize_weights[::-1])


class ForgottenConfig(BlocksConfig):
    def set_quantize_weights(self, layer, quantize_weights):
        layer.blocks[0].kernel = quantize_weights[0]


class ForgottenInnerConfig(CustomConvQuantizeConfig):
    def set_quantize_weights(self, layer, quantize_weights):
        layer.kernel = None


def test_layers_in_a_list_and_advice_that_is_python():
    _, q_model = quantized_with(BlocksConfig(), Blocks())
    names = [pair.name for pair in q_model.plan.tensors if pair.kind == "weight"]
    assert names == ["blocks/blocks/0/kernel", "blocks/blocks/1/kernel"]
    with pytest.raises(SpecError, match=r"another value into layer\.blocks\[0\]\.kernel than"):
        quantized_with(SwappedConfig(), Blocks())
    with pytest.raises(SpecError, match=r"as in layer\.blocks\[1\]\.kernel = quantize_weights\[1\],"):
        quantized_with(ForgottenConfig(), Blocks())
    with pytest.raises(SpecError, match=r"as in layer\.conv1\.kernel = quantize_weights\[0\],"):
        quantized_with(ForgottenInnerConfig(), CustomConvLayer())
