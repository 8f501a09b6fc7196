"""The rules of TFMOT's default scheme on graphs made by hand: configs, fused patterns, and what has no rule."""

import keras
import numpy as np
import pytest
from mock_graphs import GraphMaker, chain

from qdq_workbench.errors import SpecError
from qdq_workbench.graph.model_graph import Part, Weight
from qdq_workbench.tfmot.default_scheme import SchemeQuantizeConfig, default_config, output_config
from qdq_workbench.tfmot.schemes import DefaultNBitQuantizeScheme

SCHEME = DefaultNBitQuantizeScheme(num_bits_weight=4, num_bits_activation=6)


def config_in(graph, name, *, scheme=SCHEME, defaults=None):
    nodes = {node.name: node for node in graph.nodes}
    return default_config(graph, nodes[name], set(nodes) if defaults is None else defaults, scheme)


def has_pair(graph, name, **more):
    config = config_in(graph, name, **more)
    return config is not None and config.quantize_output


@pytest.mark.parametrize(
    ("class_name", "per_axis"),
    [("Conv2D", [3]), ("Conv1D", [3]), ("DepthwiseConv2D", True), ("Dense", False), ("Conv2DTranspose", False)],
)
def test_a_layer_with_weights_has_the_widths_of_the_scheme(class_name, per_axis):
    config = config_in(chain((class_name, "layer")), "layer")

    assert config.get_config() == {
        "weight_attrs": ["kernel"], "per_axis": config.per_axis, "quantize_output": True, "weight_bits": 4,
        "output_bits": 6,
    }  # fmt: skip
    assert bool(config.per_axis) == bool(per_axis)


@pytest.mark.parametrize(("multiplier", "per_axis"), [(1, False), (2, True)])
def test_a_depthwise_kernel_has_an_axis_only_with_a_multiplier(multiplier, per_axis):
    maker = GraphMaker()
    maker.add(
        "DepthwiseConv2D", "layer", "image", weights=(Weight("kernel", (3, 3, 4, multiplier)), Weight("bias", (4,)))
    )

    assert config_in(maker.graph("layer"), "layer").per_axis is per_axis


def test_scales_per_axis_can_be_switched_off():
    scheme = DefaultNBitQuantizeScheme(disable_per_axis=True)

    assert config_in(chain(("Conv2D", "layer")), "layer", scheme=scheme).per_axis is False


def test_a_layer_without_weights_has_a_config_only_for_its_output():
    pooled = config_in(chain(("AveragePooling2D", "layer")), "layer")

    assert (pooled.weight_attrs, pooled.quantize_output, pooled.output_bits) == ([], True, 6)
    for class_name in ("MaxPooling2D", "Flatten", "Dropout", "Softmax", "ZeroPadding2D"):
        assert config_in(chain((class_name, "layer")), "layer") is None


@pytest.mark.parametrize(
    ("activation", "pair"),
    [("relu", True), ("relu6", True), ("swish", True), ("gelu", True), ("linear", False), ("softmax", False),
     ("sigmoid", False), ("tanh", False)],
)  # fmt: skip
def test_activations_behind_which_values_are_quantized(activation, pair):
    assert has_pair(chain(("Activation", "layer", {"activation": activation})), "layer") == pair


@pytest.mark.parametrize(
    ("class_name", "pair"), [("Relu", True), ("Gelu", True), ("Sigmoid", False), ("Softmax", False)]
)
def test_operations_are_activations(class_name, pair):
    maker = GraphMaker()
    maker.add(class_name, "layer", "image", is_operation=True)

    assert has_pair(maker.graph("layer"), "layer") == pair


@pytest.mark.parametrize(
    ("class_name", "settings", "named"),
    [
        ("Conv2D", {"activation": "relu6"}, "a Conv2D with activation 'relu6'"),
        ("Dense", {"activation": "elu"}, "a Dense with activation 'elu'"),
        ("Activation", {"activation": "selu"}, "an? Activation with activation 'selu'"),
        ("LayerNormalization", {}, r"a LayerNormalization\."),
        ("Own", {}, r"a Own\."),
    ],
)
def test_what_has_no_rule_is_named(class_name, settings, named):
    graph = chain((class_name, "layer", settings))

    with pytest.raises(SpecError, match=f"no rule for layer 'layer', {named}.*qdq_workbench.quantize_model"):
        config_in(graph, "layer")
    assert output_config(graph.nodes[-1], SCHEME) is None, "in front of an annotated layer it stays in float"


def test_weights_of_layers_inside_have_no_rule():
    maker = GraphMaker()
    weights = (Weight("cell/kernel", (4, 16)), Weight("cell/recurrent_kernel", (4, 16)))
    maker.add("LSTM", "layer", "image", weights=weights, parts=(Part("cell", "LSTMCell"),))

    with pytest.raises(SpecError, match="a LSTM"):
        config_in(maker.graph("layer"), "layer")


@pytest.mark.parametrize(
    ("first", "second", "fused"),
    [
        (("Conv2D", "a"), ("BatchNormalization", "b"), True),
        (("Dense", "a"), ("BatchNormalization", "b"), True),
        (("Conv2DTranspose", "a"), ("BatchNormalization", "b"), False),
        (("Add", "a"), ("BatchNormalization", "b"), False),
        (("Conv2D", "a", {"activation": "relu"}), ("BatchNormalization", "b"), False),
        (("Conv2D", "a"), ("ReLU", "b"), True),
        (("BatchNormalization", "a"), ("ReLU", "b"), True),
        (("AveragePooling2D", "a"), ("ReLU", "b"), False),
        (("ReLU", "a"), ("ReLU", "b"), False),
        (("Conv2D", "a"), ("Activation", "b", {"activation": "relu6"}), True),
        (("Conv2D", "a"), ("Activation", "b", {"activation": "swish"}), False),
        (("Conv2D", "a"), ("Flatten", "b"), False),
        (("Conv2D", "a"), ("Concatenate", "b"), True),
        (("Conv2D", "a", {"activation": "relu"}), ("Concatenate", "b"), True),
        (("ReLU", "a"), ("Concatenate", "b"), True),
    ],
    ids=lambda value: value[0] if isinstance(value, tuple) else str(value),
)
def test_no_pair_is_inside_a_pattern_that_a_runtime_fuses(first, second, fused):
    graph = chain(first, second)

    assert has_pair(graph, "a") != fused
    assert has_pair(graph, "a", defaults={"a"}), "a reader with a config of its own is no part of a pattern"


def test_a_sum_is_fused_with_the_relu_behind_it():
    maker = GraphMaker()
    maker.add("Add", "add", "image", "image")
    maker.add("ReLU", "relu", "add")

    assert not has_pair(maker.graph("relu"), "add")
    assert has_pair(maker.graph("relu"), "relu")


def test_a_tensor_with_another_use_has_a_pair_of_its_own():
    maker = GraphMaker()
    maker.add("Conv2D", "conv", "image")
    maker.add("ReLU", "relu", "conv")

    assert has_pair(maker.graph("relu", "conv"), "conv"), "it is an output of the model"
    maker.add("Flatten", "flat", "conv")
    assert has_pair(maker.graph("relu", "flat"), "conv")


@pytest.mark.parametrize(
    ("class_name", "settings", "pair"),
    [
        ("Conv2D", {}, True),
        ("Conv2D", {"activation": "relu"}, True),
        ("Dense", {"activation": "gelu"}, False),  # the pair would be in front of the activation
        ("Activation", {"activation": "gelu"}, False),
        ("Activation", {"activation": "relu"}, True),
        ("MaxPooling2D", {}, False),
    ],
)
def test_outputs_in_front_of_annotated_layers(class_name, settings, pair):
    config = output_config(chain((class_name, "layer", settings)).nodes[-1], SCHEME)

    assert (config is not None) == pair
    if config is not None:
        assert (config.weight_attrs, config.quantize_output, config.output_bits) == ([], True, 6)


@pytest.mark.parametrize(("per_axis", "axes"), [(False, (None, None)), (True, (1, 1)), ([0, 1], (0, 1))])
def test_weights_and_their_quantizers(per_axis, axes):
    layer = keras.layers.SimpleRNN(3)
    layer.kernel, layer.recurrent_kernel = keras.Variable(np.ones((2, 3))), keras.Variable(np.ones((3, 3)))
    config = SchemeQuantizeConfig(("kernel", "recurrent_kernel"), per_axis, weight_bits=5)

    found = config.get_weights_and_quantizers(layer)

    assert [weight for weight, _ in found] == [layer.kernel, layer.recurrent_kernel]
    for (_, quantizer), axis in zip(found, axes, strict=True):
        own = quantizer.spec
        assert (own.num_bits, own.symmetric, own.narrow_range) == (5, True, True)
        assert (own.axis in (axis, -1)) if axis == 1 else own.axis == axis


def test_a_config_holds_what_it_is_made_again_from():
    config = SchemeQuantizeConfig(("kernel",), [1], False, 4, 6)
    again = SchemeQuantizeConfig.from_config(config.get_config())

    assert again.get_config() == config.get_config() == {
        "weight_attrs": ["kernel"], "per_axis": [1], "quantize_output": False, "weight_bits": 4, "output_bits": 6,
    }  # fmt: skip
    assert again.get_output_quantizers(None) == again.get_activations_and_quantizers(None) == []
    assert [
        quantizer.spec.num_bits for quantizer in SchemeQuantizeConfig(output_bits=6).get_output_quantizers(None)
    ] == [6]


def test_a_list_of_axes_has_one_for_each_weight():
    layer = keras.layers.Dense(2)
    layer.build((None, 2))

    with pytest.raises(ValueError, match="zip"):
        SchemeQuantizeConfig(("kernel",), [0, 1]).get_weights_and_quantizers(layer)
