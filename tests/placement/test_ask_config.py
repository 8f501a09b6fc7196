"""A config is asked about stand-ins here; `tests/conversion/test_own_quantizers.py` has Keras's layers."""

import pytest

from qdq_workbench.errors import SpecError
from qdq_workbench.graph.model_graph import Node
from qdq_workbench.placement.ask_config import ask_config


class Variable:
    def __init__(self, path):
        self.path = path


class Quantizer:
    def __init__(self, **settings):
        self._settings = {"num_bits": 4, "per_axis": False, **settings}

    def settings(self):
        return self._settings


def linear(x):
    return x


class Dense:
    def __init__(self, activation=linear):
        self.kernel, self.bias, self.activation = Variable("dense/kernel"), Variable("dense/bias"), activation
        self.trainable_weights = [self.kernel, self.bias]

    def call(self, x):
        return x


class Block:
    """A layer with others: as an attribute, in a list, in a dictionary."""

    def __init__(self):
        self.first, self.rest, self.named = Dense(), [Dense(), Dense()], {"last": Dense()}


class Config:
    """Every answer is an argument; the setter assigns each weight by the expression of its name."""

    def __init__(self, weights=(), activations=(), outputs=(), setter=None):
        self.weights, self.activations, self.outputs, self.setter = weights, activations, outputs, setter
        self.told = []

    def get_weights_and_quantizers(self, layer):
        return self.weights

    def get_activations_and_quantizers(self, layer):
        return self.activations

    def get_output_quantizers(self, layer):
        return self.outputs

    def set_quantize_weights(self, layer, weights):
        self.setter(layer, weights)

    def set_quantize_activations(self, layer, activations):
        self.told.append((isinstance(layer, Dense), activations))


def asked(config, layer, weights=None, **settings):
    node = Node("dense", "dense", type(layer).__name__, settings=settings)
    if weights is None:
        weights = [("kernel", layer.kernel), ("bias", layer.bias)]
    return ask_config(config, node, layer, weights, "spec[2]")


def assign(layer, weights):
    layer.kernel = weights[0]


def test_a_config_without_answers_asks_for_nothing():
    for nothing in ((), None, []):
        assert asked(Config(nothing, nothing, nothing), Dense()) == {"weights": {}}


def test_settings_of_weights_and_of_the_output_are_those_of_the_quantizers():
    layer = Dense()
    config = Config([(layer.kernel, Quantizer(num_bits=3))], outputs=[Quantizer(num_bits=6)], setter=assign)
    assert asked(config, layer) == {
        "weights": {"kernel": {"num_bits": 3, "per_axis": False}},
        "output": {"num_bits": 6, "per_axis": False},
        "quantize_output": True,
    }
    assert layer.kernel.path == "dense/kernel"


@pytest.mark.parametrize("source", [list, tuple, iter])
def test_pairs_may_be_lists_in_any_iterable(source):
    layer = Dense()
    config = Config(source([[layer.kernel, Quantizer()]]), setter=assign)
    assert list(asked(config, layer)["weights"]) == ["kernel"]


def test_weights_of_layers_inside_are_assigned_in_their_places():
    block = Block()
    places = {"first/kernel": block.first, "rest/1/kernel": block.rest[1], "named/last/kernel": block.named["last"]}
    weights = [(name, layer.kernel) for name, layer in places.items()]

    def setter(layer, quantized):
        layer.first.kernel, layer.rest[1].kernel, layer.named["last"].kernel = quantized
        assert layer.first.kernel is quantized[0]  # reads what it assigned

    config = Config([(variable, Quantizer()) for _, variable in weights], setter=setter)
    assert list(asked(config, block, weights)["weights"]) == list(places)
    assert block.rest[1].kernel is weights[1][1]


@pytest.mark.parametrize(
    ("name", "expression"),
    [
        ("first/kernel", r"layer\.first\.kernel = quantize_weights\[0\]"),
        ("rest/1/kernel", r"layer\.rest\[1\]\.kernel = "),
        ("named/last/kernel", "the attribute of the layer that holds it = "),  # a key, no attribute
        ("rest/7/kernel", "the attribute of the layer that holds it = "),
        ("first/bias", "the attribute of the layer that holds it = "),  # another variable
    ],
)
def test_a_forgotten_weight_is_named_as_it_is_assigned(name, expression):
    block = Block()
    held = {"rest/1/kernel": block.rest[1].kernel}.get(name, block.first.kernel)
    config = Config([(held, Quantizer())], setter=lambda layer, weights: setattr(layer.first, "bias", 1))
    with pytest.raises(SpecError, match=rf"quantized '{name}'.*{expression}.*assignments to \['first\.bias'\]"):
        asked(config, block, [(name, held)])


def test_the_second_of_two_weights_may_be_forgotten():
    layer = Dense()
    config = Config([(layer.kernel, Quantizer()), (layer.bias, Quantizer())], setter=assign)
    with pytest.raises(SpecError, match=r"quantized 'bias'.*layer\.bias = quantize_weights\[1\]"):
        asked(config, layer)


def test_a_weight_in_the_place_of_another_is_refused():
    layer = Dense()

    def swap(stand_in, weights):
        stand_in.bias, stand_in.kernel = weights

    config = Config([(layer.kernel, Quantizer()), (layer.bias, Quantizer())], setter=swap)
    with pytest.raises(SpecError, match=r"another value into layer\.bias.*Received: layer\.bias = dense/kernel"):
        asked(config, layer)


def test_what_is_assigned_beside_the_weights_is_nobodys_business():
    layer = Dense()

    def more(stand_in, weights):
        stand_in.kernel, stand_in.note, stand_in.bias = weights[0], "seen", 3
        stand_in.note = f"{stand_in.note} twice"
        assert stand_in.note == "seen twice"

    assert list(asked(Config([(layer.kernel, Quantizer())], setter=more), layer)["weights"]) == ["kernel"]
    assert not hasattr(layer, "note")


@pytest.mark.parametrize(
    ("answers", "message"),
    [
        ({"weights": [(Variable("other/kernel"), Quantizer())]}, r"has \['kernel', 'bias'\]\. Received: other/kernel"),
        ({"weights": [(3, Quantizer())]}, "Received: int"),
        ({"weights": [(3, Quantizer(), 4)]}, "must return a list of pairs"),
        ({"activations": Quantizer()}, "get_activations_and_quantizers must return a list of pairs"),
        ({"outputs": Quantizer()}, "get_output_quantizers must return a list of quantizers"),
        ({"outputs": ["int8"]}, r"a quantizer must be one of.*Received: builtins\.str"),
        ({"outputs": [Quantizer()] * 2}, "0 activation quantizers, 2 output quantizers"),
        ({"activations": [(linear, Quantizer())] * 2}, "2 activation quantizers, 0 output quantizers"),
        ({"outputs": [Quantizer(per_axis=True)]}, "one scale per tensor.*per_axis=True"),
        ({"activations": [(linear, Quantizer(per_axis=True))]}, "one scale per tensor"),
        ({"activations": [(linear, Quantizer(num_bits=2))], "outputs": [Quantizer()]}, "one tensor, which two"),
    ],
)
def test_every_refusal_names_the_entry_the_config_and_the_layer(answers, message):
    with pytest.raises(SpecError, match=rf"spec\[2\], Config for layer 'dense'.*{message}"):
        asked(Config(**answers), Dense())


def test_an_activation_and_an_output_with_equal_settings_are_one_pair():
    layer = Dense()
    config = Config(activations=[(layer.activation, Quantizer())], outputs=[Quantizer()])
    assert asked(config, layer)["output"] == Quantizer().settings()
    assert config.told == [(True, [linear])]


def test_an_activation_without_quantizer_is_left_alone():
    config = Config(activations=[(linear, None)])
    assert "output" not in asked(config, Dense())
    assert config.told == []


def test_a_function_inside_the_layer_cannot_be_quantized():
    layer = Dense()
    layer.gate = str.upper
    with pytest.raises(SpecError, match=r"values of Dense stay inside the layer.*Received: \['gate'\]"):
        asked(Config(activations=[(layer.gate, Quantizer())]), layer)
    with pytest.raises(SpecError, match="Received: lower"):
        asked(Config(activations=[(str.lower, Quantizer())]), layer)


@pytest.mark.parametrize("name", ["softmax", "sigmoid", "tanh", "gelu"])
def test_functions_whose_input_is_quantized_are_split_off_first(name):
    config = Config(activations=[(linear, Quantizer())])
    with pytest.raises(SpecError, match=rf"quantized before {name}.*Activation\('{name}'\)"):
        asked(config, Dense(), activation=name)
    assert asked(config, Dense(), activation="relu")["quantize_output"]


@pytest.mark.parametrize("method", ["get_weights_and_quantizers", "set_quantize_weights", "get_output_quantizers"])
def test_an_error_of_the_config_names_its_method(method):
    layer = Dense()
    config = Config([(layer.kernel, Quantizer())], setter=assign)

    def fails(*_):
        raise KeyError("gamma")

    setattr(config, method, fails)
    with pytest.raises(SpecError, match=f"{method} failed with KeyError: 'gamma'") as caught:
        asked(config, layer)
    assert isinstance(caught.value.__cause__, KeyError)
