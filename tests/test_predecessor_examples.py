"""The examples that the predecessor's documentation prints, with only the import changed."""

import keras
import numpy as np
import tensorflow as tf
from small_models import residual_net

from qdq_workbench import (
    CustomQDQInsertionCase,
    NonWeightedBaseQuantizeWrapper,
    QuantizationSpec,
    ResNetV1QDQCase,
    WeightedBaseQuantizeWrapper,
    check_is_quantizable_by_layer_name,
    quantize_model,
)


def documented_network():
    """The network of the predecessor's QuantizationSpec tutorial."""
    input_img = tf.keras.layers.Input(shape=(28, 28), name="input_0")
    x = tf.keras.layers.Reshape(target_shape=(28, 28, 1), name="reshape_0")(input_img)
    for i, filters in enumerate((8, 4, 2)):
        x = tf.keras.layers.Conv2D(filters=filters, kernel_size=(3, 3), name=f"conv2d_{i}")(x)
        x = tf.keras.layers.ReLU(name=f"relu_{i}")(x)
    x = tf.keras.layers.MaxPooling2D(pool_size=(2, 2), name="max_pool_0")(x)
    x = tf.keras.layers.Flatten(name="flatten_0")(x)
    x = tf.keras.layers.Dense(10, name="dense_0")(x)
    x = tf.keras.layers.ReLU(name="relu_3")(x)
    return tf.keras.Model(input_img, tf.keras.layers.Dense(10, name="dense_1")(x), name="documented")


def wrapped(q_model):
    return [layer.name.removeprefix("quant_") for layer in q_model.layers if layer.name.startswith("quant_")]


def test_global_max_pool_2d_quantize_wrapper(own_registry, tmp_path):
    class GlobalMaxPool2DQuantizeWrapper(NonWeightedBaseQuantizeWrapper):
        def __init__(self, layer, **kwargs):
            """
            Creates a wrapper to emulate quantization for the GlobalMaxPool2D keras layer.
            Args:
            layer: The keras layer to be quantized.
            **kwargs: Additional keyword arguments to be passed to the keras layer.
            """
            super().__init__(layer, **kwargs)

        def build(self, input_shape):
            super().build(input_shape)

        def call(self, inputs, training=None):
            return super().call(inputs, training=training)

    image = keras.Input((8, 8, 2), name="image")
    model = keras.Model(image, keras.layers.GlobalMaxPool2D(name="pool")(image))
    q_model = quantize_model(model)
    assert isinstance(q_model.get_layer("quant_pool"), GlobalMaxPool2DQuantizeWrapper)
    assert q_model.plan.for_layer("pool").quantize_input
    q_model.save(tmp_path / "q.keras")
    assert isinstance(
        keras.models.load_model(tmp_path / "q.keras").get_layer("quant_pool"), GlobalMaxPool2DQuantizeWrapper
    )


def test_a_wrapper_used_by_itself_quantizes_its_own_input(own_registry):
    class GlobalMaxPool2DQuantizeWrapper(NonWeightedBaseQuantizeWrapper):
        def call(self, inputs, training=None):
            return super().call(inputs, training=training)

    wrapper = GlobalMaxPool2DQuantizeWrapper(keras.layers.GlobalMaxPool2D())
    x = np.random.default_rng(0).uniform(-1, 1, (2, 4, 4, 3)).astype("float32")
    x[0, 0, 0, 0] = 1.27
    wrapper(x, training=True)
    steps = keras.ops.convert_to_numpy(wrapper(x)) / np.float32(0.01)
    np.testing.assert_allclose(steps, np.round(steps), atol=1e-3)
    assert not np.allclose(wrapper(x), x.max((1, 2)))


def test_a_weighted_wrapper_of_the_users_own(own_registry):
    class Scale(keras.layers.Layer):
        def build(self, input_shape):
            self.gains = self.add_weight(name="gains", shape=(input_shape[-1],))

        def call(self, inputs):
            return inputs * self.gains

    class ScaleQuantizeWrapper(WeightedBaseQuantizeWrapper):
        def __init__(self, layer, kernel_type="gains", **kwargs):
            super().__init__(layer, kernel_type=kernel_type, **kwargs)

        def build(self, input_shape):
            super().build(input_shape)

        def call(self, inputs, training=None):
            return super().call(inputs, training=training)

    image = keras.Input((3,), name="image")
    q_model = quantize_model(keras.Model(image, Scale(name="scale")(image)))
    assert [tensor.name for tensor in q_model.plan.tensors] == ["image", "scale/gains"]
    assert isinstance(q_model.get_layer("quant_scale"), ScaleQuantizeWrapper)


def test_max_pool_qdq_case():
    class MaxPoolQDQCase(CustomQDQInsertionCase):
        def __init__(self) -> None:
            super().__init__()

        def info(self) -> str:
            return "Enables quantization of MaxPool layers."

        def case(self, keras_model: tf.keras.Model, qspec: QuantizationSpec) -> QuantizationSpec:
            mp_qspec = QuantizationSpec()
            for layer in keras_model.layers:
                if isinstance(layer, tf.keras.layers.MaxPooling2D):  # noqa: SIM102 - as printed
                    if check_is_quantizable_by_layer_name(qspec, layer.name):
                        mp_qspec.add(name=layer.name, quantize_input=True, quantize_weight=False)
            return mp_qspec

    q_model = quantize_model(documented_network(), custom_qdq_cases=[MaxPoolQDQCase()])
    assert "max_pool_0" in wrapped(q_model)
    assert q_model.plan.for_layer("max_pool_0").author == "MaxPoolQDQCase"
    named = QuantizationSpec()
    named.add("max_pool_0", quantize_input=False, quantize_weight=False)
    kept = quantize_model(documented_network(), quantization_spec=named, custom_qdq_cases=[MaxPoolQDQCase()])
    assert "max_pool_0" not in wrapped(kept)


def test_full_default_quantization():
    assert wrapped(quantize_model(documented_network())) == ["conv2d_0", "conv2d_1", "conv2d_2", "dense_0", "dense_1"]


def test_full_custom_quantization_by_class_and_by_case():
    nn_model_original = residual_net()
    qspec = QuantizationSpec()
    qspec.add(name="Add", is_keras_class=True)
    q_nn_model = quantize_model(model=nn_model_original, quantization_spec=qspec)
    assert q_nn_model.plan.for_layer("add").input_indices == (0, 1)
    custom_qdq_case = ResNetV1QDQCase()
    q_nn_model = quantize_model(model=nn_model_original, custom_qdq_cases=[custom_qdq_case])
    assert q_nn_model.plan.for_layer("add").input_indices == (1,)


def test_partial_quantization_by_name():
    q_spec = QuantizationSpec()
    layer_name = ["conv2d_1", "conv2d_2", "dense_0"]
    q_spec.add(name=layer_name)
    assert wrapped(quantize_model(documented_network(), "partial", q_spec)) == layer_name


def test_partial_quantization_by_class_and_name():
    q_spec = QuantizationSpec()
    q_spec.add(name="Dense", is_keras_class=True)
    q_spec.add(name="conv2d_2")
    q_model = quantize_model(documented_network(), quantization_mode="partial", quantization_spec=q_spec)
    assert wrapped(q_model) == ["conv2d_2", "dense_0", "dense_1"]


def test_partial_quantization_with_flags_per_name():
    q_spec = QuantizationSpec()
    q_spec.add(
        name=["conv2d_1", "conv2d_2", "dense_0"],
        quantize_input=[True, False, True],
        quantize_weight=[False, True, True],
    )
    plan = quantize_model(documented_network(), "partial", q_spec).plan
    flags = {name: plan.for_layer(name) for name in ("conv2d_1", "conv2d_2", "dense_0")}
    assert [(f.quantize_input, f.quantize_weight) for f in flags.values()] == [
        (True, False),
        (False, True),
        (True, True),
    ]
