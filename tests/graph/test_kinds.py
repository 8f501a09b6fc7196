"""The table of layer classes names classes that Keras has, by the names that a graph holds."""

import inspect
import re

import keras
import pytest
from keras import layers
from keras_classes import CLASSES

from qdq_workbench.graph import kinds
from qdq_workbench.graph.kinds import KINDS
from qdq_workbench.graph_builder import build_graph, keras_layers
from qdq_workbench.placement.defaults import class_name_of
from qdq_workbench.placement.targets import get_target


def test_every_row_is_a_class_of_keras():
    """Keras exports some classes under other names, such as `MaxPool2D`: of these no node ever is one."""
    assert set(KINDS) - CLASSES == set()


def test_every_class_of_convolutions_has_a_row():
    """Keras has them for images of several ranks; one without a row would stay in float, and nothing would say so."""
    named = {name for name in CLASSES if re.search(r"Conv(LSTM)?\dD", name)}
    assert {"Conv1D", "Conv3DTranspose", "DepthwiseConv1D", "SeparableConv2D", "ConvLSTM3D"} <= named
    assert named - set(KINDS) == set()
    assert kinds.SEPARABLE == ("SeparableConv1D", "SeparableConv2D")


@pytest.mark.parametrize(
    ("name", "sizes", "axes"),
    [
        ("Conv1D", {"kernel": (3, 4, 5)}, {"kernel": 2}),
        ("Conv2D", {"kernel": (3, 3, 4, 5)}, {"kernel": 3}),
        ("Conv3D", {"kernel": (3, 3, 3, 4, 5)}, {"kernel": 4}),
        ("Conv2DTranspose", {"kernel": (3, 3, 5, 4)}, {"kernel": 2}),
        ("DepthwiseConv2D", {"kernel": (3, 3, 5, 1)}, {"kernel": 2}),
        ("SeparableConv2D", {"depthwise_kernel": (3, 3, 5, 1), "pointwise_kernel": (1, 1, 4, 5)},
         {"depthwise_kernel": 2, "pointwise_kernel": 3}),
        ("Dense", {"kernel": (4, 5)}, {"kernel": 1}),
    ],
)  # fmt: skip
def test_a_kernel_has_a_scale_per_channel(name, sizes, axes):
    assert {weight: axis % len(sizes[weight]) for weight, axis in KINDS[name].weights.items()} == axes


def test_a_name_by_which_keras_exports_a_class_leads_to_the_class():
    exported = {name: getattr(layers, name) for name in dir(layers) if isinstance(getattr(layers, name), type)}
    aliases = {name: kind.__name__ for name, kind in exported.items() if kind.__name__ != name}
    assert {name: class_name_of(name) for name in aliases} == aliases
    assert set(aliases) & set(KINDS) == set()


@pytest.mark.parametrize("name", ["tensorrt", "onnxruntime", "openvino", "litert"])
def test_every_class_of_a_target_has_a_row(name):
    target = get_target(name)
    listed = target.integer_kinds | target.float_output_kinds | target.same_scale_kinds | target.joined_kinds
    assert listed - set(KINDS) == set()


def test_only_operations_are_no_layers():
    assert [name for name, kind in KINDS.items() if kind.only_operation and hasattr(layers, name)] == []


def test_the_groups_of_what_combines_tensors():
    groups = {
        "ADDITIONS": ("Add", "Subtract"),
        "ARITHMETIC": ("Add", "Subtract", "Multiply"),
        "ELEMENTWISE_OPERATORS": ("Add", "Subtract", "Multiply", "Maximum", "Minimum"),
        "ELEMENTWISE": ("Add", "Subtract", "Multiply", "Maximum", "Minimum", "Average"),
        "TENSOR_PRODUCTS": ("Multiply", "Matmul"),
    }
    assert {name: getattr(kinds, name) for name in groups} == groups
    assert set(kinds.MERGES) - set(kinds.ELEMENTWISE) == {"Concatenate", "Matmul", "Dot"}


def test_both_attentions_of_several_heads_are_one_group():
    x = keras.Input((3, 8), name="x")
    y = layers.MultiHeadAttention(2, 4, name="heads")(x, x)
    graph = build_graph(keras.Model(x, layers.GroupQueryAttention(4, 4, 2, name="grouped")(y, y)))
    assert [node.name for node in graph.nodes if node.is_a(*kinds.MULTI_HEAD_ATTENTION)] == ["heads", "grouped"]


def test_what_applies_an_activation_of_its_own_has_it_as_a_setting():
    """`split_activations` takes the function out of these; the gates of cells stay inside."""
    without = {"recurrent", "cell", "activation"}
    taking = {
        name
        for name in KINDS
        if hasattr(layers, name) and "activation" in inspect.signature(getattr(layers, name)).parameters
    }
    assert set(kinds.WITH_ACTIVATION) == {name for name in taking if KINDS[name].role not in without}


def test_layers_of_keras_by_the_names_of_their_classes():
    heads = (layers.MultiHeadAttention, layers.GroupQueryAttention)
    assert keras_layers(kinds.MULTI_HEAD_ATTENTION) == heads
    assert keras_layers(("Relu", "Dense", "NoSuchLayer")) == (layers.Dense,)  # an operation is no layer
