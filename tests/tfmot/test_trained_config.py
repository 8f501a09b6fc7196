"""Saved TFMOT configurations as dictionaries: the float model inside, and the quantizers of its layers."""

import keras
import numpy as np
import pytest
from keras import layers

from qdq_workbench.errors import SpecError, UnsupportedModelError
from qdq_workbench.tfmot import quantizers
from qdq_workbench.tfmot.trained_config import (
    TrainedQuantizeConfig,
    attribute_of,
    config_of,
    unwrapped_config,
    weight_of,
)


def plain(name, class_name="Dense", nodes=None, **settings):
    found = {"class_name": class_name, "config": {"name": name, **settings}}
    return found if nodes is None else {**found, "name": name, "inbound_nodes": nodes}


def wrapped(name, kind="QuantizeWrapperV2", nodes=None, **settings):
    inner = plain(name, **settings)
    config = {"name": f"quant_{name}", "layer": inner, "quantize_config": {"class_name": "Mine", "config": {}}}
    found = {"class_name": kind, "config": config}
    return found if nodes is None else {**found, "name": f"quant_{name}", "inbound_nodes": nodes}


def quantizing(name, nodes=None):
    settings = {"name": name, "quantizer": {"class_name": "AllValuesQuantizer"}}
    found = {"class_name": "QuantizeLayer", "config": settings}
    return found if nodes is None else {**found, "name": name, "inbound_nodes": nodes}


def model(*parts, **ends):
    return {"class_name": "Functional", "config": {"name": "net", "layers": list(parts), **ends}}


def reads(name, *rest):
    return [[[name, 0, 0, *(rest or ({},))]]]


@pytest.mark.parametrize("config", [{}, {"config": []}, {"class_name": "Mine", "config": {"name": "x"}}])
def test_a_model_without_layers_is_refused(config):
    with pytest.raises(UnsupportedModelError, match="Only sequential and functional models"):
        unwrapped_config(config)


@pytest.mark.parametrize("kind", ["QuantizeWrapper", "QuantizeWrapperV2"])
def test_a_sequential_model_without_its_wrappers(kind):
    parts = plain("image", "InputLayer"), quantizing("quantize_layer"), wrapped("first", kind), wrapped("last", kind)
    found = unwrapped_config(model(*parts))

    assert found.config == model(plain("image", "InputLayer"), plain("first"), plain("last"))
    assert found.inputs == {"image": ("quantize_layer", {"class_name": "AllValuesQuantizer"})}
    assert found.layers["last"] == (
        "quant_last", {"class_name": "Mine", "config": {}, "fused_with_reader": False},
    )  # fmt: skip


def test_a_sequential_model_without_its_input_is_refused():
    with pytest.raises(UnsupportedModelError, match="no input layer; save it after building it"):
        unwrapped_config(model(quantizing("quantize_layer"), wrapped("first")))


def test_references_lead_past_what_is_removed():
    config = model(
        plain("image", "InputLayer", nodes=[]),
        quantizing("quantize_layer", nodes=reads("image")),
        wrapped("first", nodes=reads("quantize_layer")),
        plain("add", "Add", nodes=[[["quant_first", 0, 1, {"y": ["quant_first", 0, 0]}], *reads("quantize_layer")[0]]]),
        input_layers=[["image", 0, 0]],
        output_layers=[["add", 0, 0], ["quant_first", 0, 0]],
    )  # fmt: skip
    body = unwrapped_config(config).config["config"]

    assert [layer["name"] for layer in body["layers"]] == ["image", "first", "add"]
    _, first, add = body["layers"]
    assert first["inbound_nodes"] == reads("image")
    assert add["inbound_nodes"] == [[["first", 0, 1, {"y": ["first", 0, 0]}], ["image", 0, 0, {}]]]
    assert body["output_layers"] == [["add", 0, 0], ["first", 0, 0]]


@pytest.mark.parametrize(
    "value",
    [["quant_first", 1], ["quant_first", 1, "x"], ["quant_first", "x", 1], ["quant_first", 1, 2, 3, 4], [3, 0, 0]],
)
def test_lists_that_are_no_references_stay(value):
    config = model(wrapped("first", nodes=[]), plain("other", nodes=[], shape=value))

    assert unwrapped_config(config).config["config"]["layers"][1]["config"]["shape"] == value


def test_the_given_configuration_stays():
    given = model(wrapped("first", activation={"class_name": "NoOpActivation"}))
    before = repr(given)
    unwrapped_config(given)

    assert repr(given) == before


def test_quantized_activations_are_plain_ones_and_fused_layers_are_known():
    def aware(activation):
        return {"class_name": "QuantizeAwareActivation", "config": {"activation": activation}}

    found = unwrapped_config(
        model(
            wrapped("a", activation=aware("softmax")),
            wrapped("b", activation=aware({"class_name": "NoOpActivation"})),
            wrapped("c", activation={"class_name": "NoOpActivation"}),
            wrapped("d", activation={"class_name": "Own"}),
        )
    )

    activations = [layer["config"]["activation"] for layer in found.config["config"]["layers"]]
    assert activations == ["softmax", "linear", "linear", {"class_name": "Own"}]
    assert [found.layers[name][1]["fused_with_reader"] for name in "abcd"] == [False, True, True, False]


@pytest.fixture(scope="module")
def dense():
    layer = layers.Dense(3, activation="relu", name="head")
    layer.build((None, 2))
    return layer


def told(config):
    """Widths by place: of every weight, of the activation, and of the output."""
    one = (None if each is None else each.spec.num_bits for each in (config.activation, config.output))
    return ({name: each.spec.num_bits for name, each in config.weights.items()}, *one)


DENSE = {"weight_attrs": ["kernel"], "activation_attrs": ["activation"], "quantize_output": False}
NARROW = {**DENSE, "num_bits_weight": 4, "num_bits_activation": 6}
BEHIND = {**NARROW, "activation_attrs": [], "quantize_output": True}


@pytest.mark.parametrize(
    ("kind", "settings", "expected"),
    [
        ("Default8BitQuantizeConfig", DENSE, ({"kernel": 8}, 8, None)),
        ("tfmot>Default8BitConvQuantizeConfig", DENSE, ({"kernel": 8}, 8, None)),
        ("DefaultNBitConvTransposeQuantizeConfig", NARROW, ({"kernel": 4}, 6, None)),
        ("DefaultNBitQuantizeConfig", BEHIND, ({"kernel": 4}, None, 6)),
        ("NoOpQuantizeConfig", None, ({}, None, None)),
        ("Default8BitOutputQuantizeConfig", None, ({}, None, 8)),
        ("DefaultNBitOutputQuantizeConfig", {"num_bits_activation": 5}, ({}, None, 5)),
        ("Default8BitOutputQuantizeConfig", {"quantize_output": False}, ({}, None, None)),
        ("OutputOnlyConfig", {"quantize_config": {"class_name": "DefaultNBitQuantizeConfig", "config": NARROW}},
         ({}, 6, None)),
    ],
)  # fmt: skip
def test_the_quantizers_of_saved_classes(dense, kind, settings, expected):
    assert told(config_of({"class_name": kind, "config": settings}, dense, {}.get)) == expected


def test_weights_are_on_tfmots_narrow_symmetric_grid_and_values_on_the_whole_asymmetric_one(dense):
    found = config_of({"class_name": "Default8BitQuantizeConfig", "config": DENSE}, dense, {}.get)

    assert [(spec.symmetric, spec.narrow_range) for spec in (found.weights["kernel"].spec, found.activation.spec)] == [
        (True, True), (False, False),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("activation", "settings", "output"),
    [
        ("relu", {}, 8), ("swish", {}, 8), ("gelu", {"num_bits_activation": 4}, 4), ("softmax", {}, None),
        ("linear", {}, None), ("relu", {"quantize_output": False}, None),
    ],
)  # fmt: skip
def test_outputs_of_activation_layers(activation, settings, output):
    saved = {"class_name": "DefaultNBitActivationQuantizeConfig", "config": settings}

    assert told(config_of(saved, layers.Activation(activation), {}.get)) == ({}, None, output)


def test_a_layer_that_was_fused_with_its_reader_has_no_quantizer_on_its_activation(dense):
    saved = {"class_name": "Default8BitQuantizeConfig", "config": DENSE, "fused_with_reader": True}

    assert told(config_of(saved, dense, {}.get)) == ({"kernel": 8}, None, None)


def test_a_fixed_range_replaces_those_of_values_but_not_those_of_weights(dense):
    inner = {"class_name": "DefaultNBitQuantizeConfig", "config": NARROW}
    settings = {"config": inner, "init_min": -1.0, "init_max": 2.0, "narrow_range": True}
    found = config_of({"class_name": "FixedQuantizeConfig", "config": settings}, dense, {}.get)

    assert told(found) == ({"kernel": 4}, 8, None)
    assert isinstance(found.activation, quantizers.FixedQuantizer)
    assert (found.activation.init_min, found.activation.init_max) == (-1.0, 2.0)
    assert found.activation.spec.narrow_range


def own(weights=(), activations=0, outputs=0):
    """A config class of the user's with so many quantizers."""
    made = quantizers.MovingAverageQuantizer(5)

    class Own:
        from_config = classmethod(lambda cls, config: cls())

        def get_weights_and_quantizers(self, layer):
            return [(getattr(layer, name), quantizers.LastValueQuantizer(3)) for name in weights]

        def get_activations_and_quantizers(self, layer):
            return [(layer.activation, made)] * activations

        def get_output_quantizers(self, layer):
            return [made] * outputs if outputs else None

    return {"Own": Own}.get


def test_a_class_of_the_users_own(dense):
    saved = {"class_name": "mine>Own", "config": {}}

    assert told(config_of(saved, dense, own(["kernel", "bias"], 1))) == ({"kernel": 3, "bias": 3}, 5, None)
    assert told(config_of(saved, dense, own(outputs=1))) == ({}, None, 5)
    with pytest.raises(SpecError, match=r"'head' was quantized with Own, .*custom_objects=\{'Own': Own\}"):
        config_of(saved, dense, {}.get)


@pytest.mark.parametrize(
    ("activation", "counts", "fits"),
    [("relu", (1, 1), False), ("softmax", (1, 1), True), ("relu", (2, 0), False), ("softmax", (0, 2), False)],
)
def test_one_output_has_one_quantizer_and_another_only_in_front_of_the_activation(activation, counts, fits):
    layer = layers.Dense(3, activation=activation, name="head")
    layer.build((None, 2))

    if fits:
        assert told(config_of({"class_name": "Own"}, layer, own((), *counts))) == ({}, 5, 5)
        return
    with pytest.raises(SpecError, match=f"Received: {counts[0]} activations, {counts[1]} outputs"):
        config_of({"class_name": "Own"}, layer, own((), *counts))


def test_a_config_reads_and_sets_the_parts_of_its_layer(dense):
    made = quantizers.MovingAverageQuantizer(5)
    config = TrainedQuantizeConfig({"kernel": quantizers.LastValueQuantizer(4)}, activation=made)

    assert [weight for weight, _ in config.get_weights_and_quantizers(dense)] == [dense.kernel]
    assert config.get_activations_and_quantizers(dense) == [(dense.activation, made)]
    assert config.get_output_quantizers(dense) == []
    before = dense.activation
    config.set_quantize_activations(dense, [])
    assert dense.activation is before
    config.set_quantize_activations(dense, [len])
    assert dense.activation is len
    dense.activation = before


@pytest.mark.parametrize(
    ("arguments", "empty"),
    [
        ({}, True),
        ({"weights": {"kernel": quantizers.LastValueQuantizer(4)}}, False),
        ({"activation": quantizers.MovingAverageQuantizer(5)}, False),
        ({"output": quantizers.MovingAverageQuantizer(5)}, False),
    ],
)
def test_a_config_is_made_again_from_what_it_saves(arguments, empty):
    config = TrainedQuantizeConfig(**arguments)
    again = keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(config))

    assert again.is_empty == config.is_empty == empty
    assert told(again) == told(config)
    assert again.get_config() == config.get_config()


def test_a_depthwise_kernel_has_its_name_of_keras_2_only_where_there_is_none_of_that_name(dense):
    assert weight_of(dense, "kernel") is dense.kernel
    assert weight_of(dense, "depthwise_kernel") is dense.kernel
    assert weight_of(dense, "pointwise_kernel") is None
    assert attribute_of(dense, "depthwise_kernel") == "kernel"
    assert attribute_of(dense, "pointwise_kernel") == "pointwise_kernel"
    separable = layers.SeparableConv2D(2, 3)
    separable.build((None, 8, 8, 2))
    assert attribute_of(separable, "depthwise_kernel") == "depthwise_kernel"
    assert weight_of(separable, "depthwise_kernel") is separable.depthwise_kernel
    np.testing.assert_equal(weight_of(separable, "depthwise_kernel").shape, (3, 3, 2, 1))
