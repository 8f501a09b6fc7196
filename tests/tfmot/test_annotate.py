"""Annotations on models of one or two layers: which layers get one, what it keeps of a layer, and what is refused."""

import keras
import numpy as np
import pytest
from keras import layers

import qdq_workbench as qdq
from qdq_workbench.errors import SpecError
from qdq_workbench.tfmot.annotate import (
    QuantizeAnnotate,
    annotated_with,
    inner_of,
    quantize_annotate_layer,
    quantize_annotate_model,
)
from qdq_workbench.tfmot.default_configs import Default8BitOutputQuantizeConfig, NoOpQuantizeConfig

X = np.random.default_rng(0).normal(size=(3, 4)).astype(np.float32)


def net(*parts):
    return keras.Sequential([keras.Input((4,), name="image"), *parts])


def marks(model):
    """The config of every annotated layer, by the layer's name."""
    found = (layer for layer in model.layers if isinstance(layer, QuantizeAnnotate))
    return {layer.layer.name: layer.quantize_config for layer in found}


@pytest.mark.parametrize(
    "wrong", [None, "dense", layers.Dense, quantize_annotate_layer(layers.Dense(1)), net()], ids=repr
)
def test_one_keras_layer_is_annotated(wrong):
    with pytest.raises(SpecError, match="takes one Keras layer that is not annotated yet"):
        quantize_annotate_layer(wrong)


@pytest.mark.parametrize("wrong", [NoOpQuantizeConfig, "8 bits", {}], ids=repr)
def test_a_config_is_an_instance(wrong):
    with pytest.raises(SpecError, match="must be an instance of a subclass of QuantizeConfig, or None"):
        quantize_annotate_layer(layers.Dense(1), wrong)


@pytest.mark.parametrize("config", [None, NoOpQuantizeConfig(), qdq.LayerQuantizeConfig(weight={"num_bits": 4})])
def test_an_annotation_is_made_again_from_its_configuration(config):
    mark = quantize_annotate_layer(layers.Dense(2, name="head"), config)
    again = keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(mark))

    assert (again.layer.name, again.layer.units) == ("head", 2)
    assert again.quantize_config == config
    assert type(again.quantize_config) is type(config)


def test_an_annotation_is_as_trainable_as_its_layer_and_has_its_type():
    frozen = layers.Dense(2, trainable=False, dtype="mixed_float16")
    mark = quantize_annotate_layer(frozen)

    assert not mark.trainable
    assert mark.dtype_policy == frozen.dtype_policy
    assert quantize_annotate_layer(layers.Dense(2)).trainable
    assert mark(keras.KerasTensor((None, 3))).dtype == "float16"


def test_an_annotation_passes_masks_and_shapes_on():
    for layer, supports in ((layers.Dense(2), True), (layers.Flatten(), False)):
        layer.supports_masking = supports
        assert quantize_annotate_layer(layer).supports_masking == supports
    assert quantize_annotate_layer(layers.Conv2D(3, 2)).compute_output_shape((None, 5, 5, 1)) == (None, 4, 4, 3)


def test_the_outputs_of_an_annotated_layer_have_its_own_types():
    class Both(layers.Layer):
        def call(self, inputs, scale=1.0):
            return inputs * scale, keras.ops.cast(inputs > 0, "int32")

    mark = quantize_annotate_layer(Both())
    first, second = mark(keras.KerasTensor((None, 4)), scale=2.0)

    assert (first.dtype, second.dtype) == ("float32", "int32")
    np.testing.assert_array_equal(mark(X, scale=2.0)[0], X * 2)


def test_only_layers_that_ask_are_told_whether_the_model_trains():
    class Plain(layers.Layer):
        def call(self, inputs):
            return inputs + 1.0

    drop, plain = quantize_annotate_layer(layers.Dropout(0.9, seed=0)), quantize_annotate_layer(Plain())

    assert not np.array_equal(drop(X, training=True), X)
    np.testing.assert_array_equal(drop(X, training=False), X)
    np.testing.assert_array_equal(plain(X, training=True), X + 1)


def test_every_layer_of_a_model_is_annotated_and_a_config_stays():
    config = Default8BitOutputQuantizeConfig()
    own = quantize_annotate_layer(layers.Dense(3, name="own"), config)
    model = net(layers.Dense(3, name="first"), own, layers.ReLU(name="last"))
    before = [type(layer) for layer in model.layers]

    annotated = quantize_annotate_model(model)

    assert marks(annotated) == {"first": None, "own": config, "last": None}
    assert [type(layer) for layer in model.layers] == before
    assert inner_of(annotated.layers[-2]) is not own.layer
    np.testing.assert_array_equal(annotated(X), model(X))
    assert (annotated.name, annotated.compiled) == (model.name, False)


def test_operations_and_lambda_layers_are_not_annotated():
    image = keras.Input((4,), name="image")
    twice = layers.Lambda(lambda x: x * 2.0, name="twice")(image)
    model = keras.Model(image, layers.Dense(2, name="head")(twice + 1.0))

    with pytest.warns(UserWarning, match="'twice' is not annotated and stays in float") as found:
        annotated = quantize_annotate_model(model)
    assert len(found) == 1
    assert marks(annotated) == {"head": None}
    np.testing.assert_allclose(annotated(X), model(X), rtol=1e-6)


def test_exactly_the_named_layers_are_annotated():
    config, other = NoOpQuantizeConfig(), Default8BitOutputQuantizeConfig()
    model = net(
        quantize_annotate_layer(layers.Dense(3, name="a"), other),
        quantize_annotate_layer(layers.Dense(3, name="b"), other),
        layers.Dense(2, name="c"),
    )

    annotated = annotated_with(model, {"b": config, "c": other, "unknown": other})

    assert marks(annotated) == {"b": config, "c": other}
    assert marks(model) == {"a": other, "b": other}
    np.testing.assert_array_equal(annotated(X), model(X))


def test_a_layer_alone_is_no_model():
    with pytest.raises(SpecError, match=r"annotated with quantize_annotate_layer\(layer\)"):
        quantize_annotate_model(layers.Dense(2))


def test_the_layer_inside_is_found():
    layer = layers.Dense(2)

    assert inner_of(quantize_annotate_layer(layer)) is inner_of(layer) is layer
