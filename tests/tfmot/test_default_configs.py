"""TFMOT's default configs by hand: weights and activations by name, what does not fit, equality, and saving."""

from types import SimpleNamespace

import keras
import numpy as np
import pytest
from keras import layers

from qdq_workbench.errors import SpecError
from qdq_workbench.tfmot.default_configs import (
    Default8BitActivationQuantizeConfig,
    Default8BitConvQuantizeConfig,
    Default8BitConvTransposeQuantizeConfig,
    Default8BitOutputQuantizeConfig,
    Default8BitQuantizeConfig,
    NoOpQuantizeConfig,
)


@pytest.fixture
def dense():
    layer = layers.Dense(3, activation="relu", name="head")
    layer.build((None, 2))
    return layer


@pytest.mark.parametrize(
    ("cls", "per_axis"),
    [
        (Default8BitQuantizeConfig, False),
        (Default8BitConvQuantizeConfig, True),
        (Default8BitConvTransposeQuantizeConfig, False),
    ],
)
def test_weights_and_activations_are_those_named(dense, cls, per_axis):
    config = cls(("kernel",), ("activation",), quantize_output=True)
    ((weight, of_weight),) = config.get_weights_and_quantizers(dense)
    ((activation, of_activation),) = config.get_activations_and_quantizers(dense)

    assert weight is dense.kernel
    assert activation is dense.activation
    assert (of_weight.spec.num_bits, of_weight.spec.symmetric, of_weight.spec.narrow_range) == (8, True, True)
    assert (of_weight.spec.axis is not None) == per_axis
    assert (of_activation.spec.num_bits, of_activation.spec.symmetric) == (8, False)
    assert config.get_output_quantizers(dense) == [of_activation]
    assert cls([], [], quantize_output=False).get_output_quantizers(dense) == []


def test_weights_are_replaced_together_or_not_at_all():
    layer = SimpleNamespace(name="head", kernel=np.zeros((2, 3)), bias=np.zeros(3))
    config = Default8BitQuantizeConfig(["kernel", "bias"], [], quantize_output=False)
    before = layer.kernel, layer.bias

    with pytest.raises(SpecError, match=r"shape \(3,\) for 'bias' of layer 'head'. Received: shape \(2,\)"):
        config.set_quantize_weights(layer, [np.ones((2, 3)), np.ones(2)])
    assert (layer.kernel, layer.bias) == before

    kernel, bias = np.ones((2, 3)), np.ones(3)
    config.set_quantize_weights(layer, [kernel, bias])
    assert layer.kernel is kernel
    assert layer.bias is bias


@pytest.mark.parametrize("count", [0, 2])
def test_there_is_one_value_for_each_name(dense, count):
    config = Default8BitQuantizeConfig(["kernel"], ["activation"], quantize_output=False)
    before = dense.kernel, dense.activation

    with pytest.raises(SpecError, match=rf"set_quantize_weights takes .*\['kernel'\].* Received: {count} values"):
        config.set_quantize_weights(dense, [np.ones((2, 3))] * count)
    with pytest.raises(
        SpecError, match=rf"set_quantize_activations takes .*\['activation'\].* Received: {count} values"
    ):
        config.set_quantize_activations(dense, [len] * count)
    assert (dense.kernel, dense.activation) == before
    config.set_quantize_activations(dense, [len])
    assert dense.activation is len


@pytest.mark.parametrize("name", ["relu", "relu6", "swish", "silu", "gelu"])
def test_outputs_of_some_activations_are_quantized(name):
    layer = layers.Activation(name)

    assert len(Default8BitActivationQuantizeConfig().get_output_quantizers(layer)) == 1
    assert Default8BitActivationQuantizeConfig(quantize_output=False).get_output_quantizers(layer) == []


@pytest.mark.parametrize("name", ["linear", "softmax", "sigmoid", "tanh"])
def test_outputs_of_others_are_not(name):
    assert Default8BitActivationQuantizeConfig().get_output_quantizers(layers.Activation(name)) == []


@pytest.mark.parametrize(
    ("layer", "received"),
    [
        (layers.Activation("elu", name="act"), "Activation 'act' with activation 'elu'"),
        (layers.Dense(2, activation="relu", name="act"), "Dense 'act' with activation 'relu'"),
        (layers.ReLU(name="act"), "ReLU 'act' with activation None"),
    ],
)
def test_other_layers_and_activations_are_refused(layer, received):
    with pytest.raises(SpecError, match=f"for Activation layers with one of .* Received: {received}"):
        Default8BitActivationQuantizeConfig().get_output_quantizers(layer)
    assert Default8BitActivationQuantizeConfig(quantize_output=False).get_output_quantizers(layer) == []


CONFIGS = [
    Default8BitQuantizeConfig(["kernel"], ["activation"], quantize_output=False),
    Default8BitQuantizeConfig(["kernel"], [], quantize_output=False),
    Default8BitQuantizeConfig(["kernel"], [], quantize_output=True),
    Default8BitConvQuantizeConfig(["kernel"], [], quantize_output=True),
    Default8BitOutputQuantizeConfig(),
    Default8BitOutputQuantizeConfig(quantize_output=False),
    Default8BitActivationQuantizeConfig(),
    NoOpQuantizeConfig(),
]


def test_configs_are_equal_if_their_classes_and_arguments_are():
    for place, config in enumerate(CONFIGS):
        again = type(config).from_config(config.get_config())
        assert [other == again for other in CONFIGS] == [index == place for index in range(len(CONFIGS))]
        assert hash(again) == hash(config)
    assert len(set(CONFIGS)) == len(CONFIGS)
    assert CONFIGS[0] != CONFIGS[0].get_config()


@pytest.mark.parametrize("config", CONFIGS, ids=lambda config: type(config).__name__)
def test_configs_are_saved_with_a_model(config):
    saved = keras.saving.serialize_keras_object(config)

    assert keras.saving.deserialize_keras_object(saved) == config


def test_a_layer_of_no_operation_stays_in_float(dense):
    config = NoOpQuantizeConfig()

    found = (config.get_weights_and_quantizers, config.get_activations_and_quantizers, config.get_output_quantizers)
    assert [get(dense) for get in found] == [[], [], []]
