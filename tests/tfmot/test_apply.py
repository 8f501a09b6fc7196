"""`quantize_apply` on models of one or two layers: prefixes, scopes, split activations and inputs."""

import keras
import numpy as np
import pytest
from keras import layers

import qdq_workbench as qdq
from qdq_workbench.errors import SpecError
from qdq_workbench.tfmot.annotate import quantize_annotate_layer, quantize_annotate_model
from qdq_workbench.tfmot.apply import (
    _activation_before,
    _after_activation,
    _checked_prefix,
    _OutputOnly,
    apply_marks,
    quantize_apply,
    quantize_model,
    quantize_scope,
)
from qdq_workbench.tfmot.default_configs import Default8BitQuantizeConfig, NoOpQuantizeConfig
from qdq_workbench.tfmot.quantizers import MovingAverageQuantizer
from qdq_workbench.tfmot.trained_config import TrainedQuantizeConfig

X = np.random.default_rng(0).normal(size=(3, 4)).astype(np.float32)
BEHIND = Default8BitQuantizeConfig(["kernel"], ["activation"], quantize_output=False)
BOTH = Default8BitQuantizeConfig(["kernel"], ["activation"], quantize_output=True)
WEIGHTS = Default8BitQuantizeConfig(["kernel"], [], quantize_output=False)
LAYER = qdq.LayerQuantizeConfig(weight={"num_bits": 4})


def net(*parts):
    return keras.Sequential([keras.Input((4,), name="image"), *parts])


def pairs(q_model):
    return {tensor.tensor for tensor in q_model.plan.tensors if tensor.kind == "activation"}


@pytest.mark.parametrize(("given", "prefix"), [("quant_", "quant_"), ("", ""), (None, "")])
def test_prefixes(given, prefix):
    assert _checked_prefix(given) == prefix


@pytest.mark.parametrize("wrong", [0, b"quant_", "a/b", ["quant_"]])
def test_what_is_no_prefix_is_refused(wrong):
    with pytest.raises(SpecError, match=r"a text without a slash.* Received: quantized_layer_name_prefix="):
        _checked_prefix(wrong)


def test_a_scope_knows_quantized_models_and_several_dictionaries():
    find = keras.saving.get_registered_object
    with quantize_scope({"A": layers.Dense}, {"B": layers.ReLU, "A": layers.Flatten}):
        assert (find("QuantizedModel"), find("A"), find("B")) == (qdq.QuantizedModel, layers.Flatten, layers.ReLU)
    with quantize_scope():
        assert find("QuantizedModel") is qdq.QuantizedModel
    assert find("QuantizedModel") is None


def built(activation, cls=layers.Dense, **fields):
    layer = cls(2, activation=activation, **fields) if cls is layers.Dense else cls(activation)
    layer.build((None, 4))
    return layer


@pytest.mark.parametrize(
    ("layer", "config", "found"),
    [
        *((built(name), None, name) for name in ("softmax", "sigmoid", "tanh", "gelu")),
        (built("relu"), None, None),
        (built("linear"), None, None),
        (built("sigmoid"), BEHIND, "sigmoid"),
        (built("sigmoid"), WEIGHTS, None),
        (built("sigmoid"), NoOpQuantizeConfig(), None),
        (built("sigmoid"), LAYER, None),
        (built("sigmoid", layers.Activation), None, None),
        (layers.ReLU(), None, None),
        (layers.Dense(2, activation="sigmoid"), None, None),  # not built, so without weights
    ],
)
def test_an_activation_is_split_off_where_the_pair_is_in_front_of_it(layer, config, found):
    assert _activation_before(layer, config) == found


@pytest.mark.parametrize(
    ("activation", "config", "count"),
    [("sigmoid", BEHIND, 0), ("sigmoid", BOTH, 1), ("gelu", BEHIND, 1), ("gelu", BOTH, 1)],
)
def test_a_split_activation_has_the_quantizer_of_the_output(activation, config, count):
    found = _after_activation(built(activation), config, activation)

    assert found.get_output_quantizers(None) == [config.activation_quantizer] * count
    output = MovingAverageQuantizer(6)
    both = TrainedQuantizeConfig(activation=MovingAverageQuantizer(5), output=output)
    assert _after_activation(built(activation), both, activation).get_output_quantizers(None) == [output]
    assert found.get_weights_and_quantizers(None) == found.get_activations_and_quantizers(None) == []


def test_the_config_of_a_split_activation_can_be_saved():
    saved = _OutputOnly([MovingAverageQuantizer(5)]).get_config()

    assert [keras.saving.deserialize_keras_object(one).spec.num_bits for one in saved["quantizers"]] == [5]


def test_a_split_activation_has_a_name_that_is_free():
    image = keras.Input((4,), name="image")
    taken = layers.Dense(4, name="head_sigmoid")(image)
    head = quantize_annotate_layer(layers.Dense(2, activation="sigmoid", name="head"))(taken)
    model = keras.Model(image, head)
    q_model = quantize_apply(model)

    float_model = qdq.strip(q_model)
    names = [layer.name for layer in float_model.layers]
    assert names[:3] == ["image", "head_sigmoid", "head"]
    assert names[3] not in names[:3]
    assert names[3].startswith("head_sigmoid")
    np.testing.assert_allclose(float_model(X), model(X), rtol=1e-6)


def test_the_scheme_is_for_layers_without_a_config_alone():
    q_model = quantize_apply(
        net(
            quantize_annotate_layer(layers.Dense(3, name="free"), NoOpQuantizeConfig()),
            quantize_annotate_layer(layers.Dense(2, name="head"), LAYER),
        )
    )

    bits = {tensor.name: tensor.quantizer.num_bits for tensor in q_model.plan.tensors if tensor.kind == "weight"}
    assert bits == {"head/kernel": 4}


@pytest.mark.parametrize("function", [quantize_model, quantize_apply])
def test_a_quantized_model_is_refused(function):
    q_model = qdq.quantize_model(net(layers.Dense(2, name="head")))

    with pytest.raises(SpecError, match=rf"{function.__name__} takes a float model; this one is quantized already"):
        function(q_model)


@pytest.mark.parametrize("wrong", ["8bit", {}, 8])
def test_a_scheme_of_another_type_is_refused(wrong):
    with pytest.raises(SpecError, match="knows Default8BitQuantizeScheme and DefaultNBitQuantizeScheme"):
        quantize_apply(quantize_annotate_model(net(layers.Dense(2))), wrong)


def test_inputs_of_integers_get_no_pair():
    tokens = keras.Input((3,), dtype="int32", name="tokens")
    marked = quantize_annotate_layer(layers.Embedding(5, 4, name="table"), LAYER)(tokens)
    q_model = quantize_apply(keras.Model(tokens, layers.Flatten(name="flat")(marked)))

    assert "tokens" not in pairs(q_model)


@pytest.mark.parametrize(
    ("inputs", "bits"), [(None, 8), ({"image": qdq.LayerQuantizeConfig(output={"num_bits": 6})}, 6)]
)
def test_pairs_of_inputs_are_those_of_the_scheme_or_those_given(inputs, bits):
    annotated = quantize_annotate_model(net(layers.Dense(2, name="head")))
    q_model = apply_marks(annotated, inputs, "tensorrt")

    grid = next(tensor.quantizer for tensor in q_model.plan.tensors if tensor.tensor == "image")
    assert (grid.num_bits, grid.symmetric) == (bits, False if inputs is None else grid.symmetric)


def test_without_any_given_input_none_has_a_pair_of_the_scheme():
    q_model = apply_marks(quantize_annotate_model(net(layers.Dense(2, name="head"))), {}, "tensorrt")

    assert {p.author for p in q_model.plan.placements if p.tensor == "image"} <= {"target"}


def test_a_layer_in_front_has_a_pair_only_for_a_reader_with_one_call_and_one_input():
    image = keras.Input((4,), name="image")
    front, twice = layers.Dense(4, activation="relu", name="front")(image), layers.Dense(4, activation="relu", name="t")
    shared = quantize_annotate_layer(layers.Dense(4, name="shared"), WEIGHTS)
    add = quantize_annotate_layer(layers.Add(name="add"))
    alone = keras.Model(image, quantize_annotate_layer(layers.Dense(2, name="head"), WEIGHTS)(front))
    called_twice = keras.Model(image, shared(shared(front)))
    two_inputs = keras.Model(image, add([twice(image), twice(image)]))

    assert "front" in pairs(quantize_apply(alone))
    assert "front" not in pairs(quantize_apply(called_twice))
    assert "t" not in pairs(quantize_apply(two_inputs))
