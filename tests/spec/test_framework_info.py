"""The interface of MCT's `FrameworkInfo`, in every form that its documentation shows."""

import keras
import pytest

from qdq_workbench.errors import SpecError
from qdq_workbench.graph import Node
from qdq_workbench.spec import DefaultDict, FrameworkInfo, QuantizationMethod


def test_five_six_and_eight_positional_arguments():
    axes = DefaultDict({keras.layers.Conv2D: (3, 2)})
    activations, layers = {"softmax": (0, 1)}, {keras.layers.Softmax: (0, 1)}
    five = FrameworkInfo([keras.layers.Conv2D], [], [], activations, layers)
    six = FrameworkInfo([keras.layers.Conv2D], [], [], axes, activations, layers)
    eight = FrameworkInfo([keras.layers.Conv2D], [], [], {"a": 1}, {"b": 2}, axes, activations, layers)
    for info in (five, six, eight):
        assert info.activation_min_max_mapping == activations
        assert info.layer_min_max_mapping == layers
        assert info.in_kernel_ops(keras.layers.Conv2D)
    assert five.kernel_channels_mapping is None
    assert six.kernel_channels_mapping is eight.kernel_channels_mapping is axes
    assert (eight.activation_quantizer_mapping, eight.weights_quantizer_mapping) == ({"a": 1}, {"b": 2})


def test_by_name():
    info = FrameworkInfo(
        kernel_ops=["Conv2D"],
        activation_ops=[],
        no_quantization_ops=[],
        kernel_channels_mapping={"Conv2D": (3, 2)},
        layer_min_max_mapping={"Softmax": (0, 1)},
    )
    assert info.kernel_axis("Conv2D") == 3
    assert info.kernel_axis("Dense") is None
    assert info.layers_has_min_max("Softmax")
    assert not info.layers_has_min_max("ReLU")


@pytest.mark.parametrize(
    "layer", ["Conv2D", keras.layers.Conv2D, Node("c", "c", "Conv2D")], ids=["name", "class", "node"]
)
def test_a_class_is_a_class_its_name_or_a_node(layer):
    for listed in ("Conv2D", keras.layers.Conv2D):
        info = FrameworkInfo([listed], [], [], DefaultDict({listed: (3, 2)}), {}, {})
        assert info.in_kernel_ops(layer)
        assert info.is_listed(layer)
        assert info.kernel_axis(layer) == 3


def test_classes_are_compared_exactly():
    class MyConv(keras.layers.Conv2D):
        pass

    assert not FrameworkInfo([keras.layers.Conv2D], [], [], {}, {}).in_kernel_ops(MyConv)


def test_names_of_activations():
    info = FrameworkInfo([], [], [], {"swish": (-0.279, None), "linear": (None, None)}, {})
    assert info.activation_range("silu") == (-0.279, None)
    assert info.activation_range("identity") == (None, None)
    assert info.activation_range("gelu") is None
    assert not info.activation_has_min_max("gelu")


def test_default_dict():
    axes = DefaultDict({"a": 1}, lambda: 7)
    assert (axes.get("a"), axes.get("b"), DefaultDict({}).get("b")) == (1, 7, None)


def test_methods_have_mcts_names():
    names = {"POWER_OF_TWO", "SYMMETRIC", "UNIFORM", "SYMMETRIC_UNIFORM", "KMEANS", "LUT_QUANTIZER"}
    assert {method.name for method in QuantizationMethod} == names


@pytest.mark.parametrize(
    ("arguments", "named", "message"),
    [
        (([], [], [], {}), {}, "Received: 4 positional"),
        (([], [], [], {}, {}, {}, {}), {}, "Received: 7 positional"),
        (("Conv2D", [], []), {}, "kernel_ops must be a list"),
        (([], [], [], [], {}), {}, "activation_min_max_mapping must be a dictionary"),
        (([], [], [], {"relu": 0}, {}), {}, "pairs"),
        (([], [], [], {"relu": (1, 0)}, {}), {}, "above the highest"),
        (([], [], [], {"relu": (None, True)}, {}), {}, "pairs"),
        (([], [], [], 3, {}, {}), {}, "kernel_channels_mapping must be"),
        (([], [], []), {"layer_ranges": {}}, "no argument 'layer_ranges'"),
        (([], [], [], {}, {}), {"layer_min_max_mapping": {}}, "by position and by name"),
    ],
)
def test_what_fits_no_form(arguments, named, message):
    with pytest.raises(SpecError, match=message):
        FrameworkInfo(*arguments, **named)


def test_axes_that_were_not_given():
    with pytest.raises(SpecError, match="knows no axes"):
        FrameworkInfo(["Conv2D"], [], [], {}, {}).kernel_axis("Conv2D")
