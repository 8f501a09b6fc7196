"""What cannot be negative, by one table: measured, and the same in the exported file."""

import keras
import numpy as np
import onnx
import pytest
from keras import layers, ops
from mock_graphs import GraphMaker

import qdq_workbench as qdq
from qdq_workbench.export.passes.fold_pads import _is_never_negative
from qdq_workbench.graph.never_negative import KEEPS, MAKES, ceiling, is_never_negative
from qdq_workbench.graph_builder import build_graph
from qdq_workbench.onnx_graph.graph import Graph

CLAIMED = {
    "AveragePooling": lambda n: {"pool_size": 2},
    "GlobalAveragePooling": lambda n: {},
    "GlobalMaxPooling": lambda n: {},
    "MaxPooling": lambda n: {"pool_size": 2},
    "UpSampling": lambda n: {"size": 2},
    "Cropping": lambda n: {"cropping": 1},
    "ZeroPadding": lambda n: {"padding": 1},
    "Flatten": lambda n: {},
    "Reshape": lambda n: {"target_shape": (-1, 2)},
    "Permute": lambda n: {"dims": (*range(2, n + 2), 1)},
}
ACTIVATIONS = {
    "relu": layers.ReLU,
    "relu6": lambda: layers.ReLU(6.0),
    "clipped_relu": lambda: layers.ReLU(2.0),
    "sigmoid": lambda: layers.Activation("sigmoid"),
    "softmax": layers.Softmax,
}


class MaxPoolingMinusOne(layers.Layer):
    """A layer of the user's own that only is called like one of Keras's."""

    def call(self, x):
        return x - 1.0


class Block(layers.Layer):
    """A layer of the user's own whose activation is somewhere inside."""

    def __init__(self, activation="relu", **kwargs):
        super().__init__(**kwargs)
        self.activation = keras.activations.get(activation)

    def call(self, x):
        return self.activation(x) - 1.0


class AlwaysDropout(layers.AlphaDropout):
    """Monte Carlo dropout: it stays on at inference."""

    def call(self, x, training=None):
        return super().call(x, training=True)


def behind_relu(layer, shape):
    image = keras.Input(shape)
    return keras.Model(image, layer(ops.relu(image)))


def claims(model):
    graph = build_graph(model)
    return is_never_negative(graph, graph.outputs[0])


def smallest(model):
    values = np.random.default_rng(0).normal(size=(8, *model.input_shape[1:])).astype(np.float32)
    return min(float(np.min(value)) for value in keras.tree.flatten(model(values)))


def test_every_activation_of_the_table_makes_it():
    assert set(ACTIVATIONS) == set(MAKES)
    for make in ACTIVATIONS.values():
        image = keras.Input((6,))
        model = keras.Model(image, make()(image))
        assert claims(model)
        assert smallest(model) >= 0.0


@pytest.mark.parametrize("class_name", [name for name in KEEPS if name.rstrip("123D") in CLAIMED])
def test_every_layer_of_the_table_keeps_it(class_name):
    rank = int(class_name[-2]) if class_name.endswith("D") else 2
    layer = getattr(layers, class_name)(**CLAIMED[class_name.rstrip("123D")](rank))
    model = behind_relu(layer, (*[4] * rank, 2))
    assert claims(model)
    assert smallest(model) >= 0.0


@pytest.mark.parametrize(
    "operation",
    [
        lambda x: ops.squeeze(x[:, ::2, :1], 2),
        lambda x: ops.expand_dims(ops.transpose(x, (0, 2, 1)), 1),
        lambda x: layers.Concatenate()([x, x]),
    ],
)
def test_so_do_operations_that_move_values(operation):
    model = behind_relu(operation, (4, 3))
    assert claims(model)
    assert smallest(model) >= 0.0


def test_no_row_of_the_table_goes_untested():
    tested = {name for name in KEEPS if name.rstrip("123D") in CLAIMED}
    assert set(KEEPS) - tested == {"Concatenate", "ExpandDims", "GetItem", "Squeeze", "Transpose"}


@pytest.mark.parametrize("interpolation", ["bicubic", "lanczos3", "lanczos5"])
def test_an_interpolation_that_overshoots_does_not(interpolation):
    model = behind_relu(layers.UpSampling2D(2, interpolation=interpolation), (6, 6, 2))
    assert not claims(model)
    assert smallest(model) < 0.0


@pytest.mark.parametrize(
    "layer",
    [
        MaxPoolingMinusOne(),
        Block("relu"),
        AlwaysDropout(0.5),
        lambda x: ops.concatenate([x, -np.ones((8, 4, 3), np.float32)]),
    ],
    ids=["name", "activation", "dropout", "constant"],
)
def test_what_only_looks_like_it_does_not(layer):
    model = behind_relu(layer, (4, 3))
    assert not claims(model)
    assert smallest(model) < 0.0


def test_a_recurrent_layer_may_start_from_a_negative_state():
    steps, state = keras.Input((3, 2)), keras.Input((4,))
    model = keras.Model([steps, state], layers.GRU(4, activation="relu")(steps, initial_state=state))
    assert not claims(model)
    assert float(np.min(model([np.zeros((1, 3, 2)), -np.ones((1, 4))]))) < 0.0


def test_many_paths_to_one_tensor_are_looked_at_once():
    image = keras.Input((4, 4, 2))
    x = ops.relu(image)
    for _ in range(40):  # 2^40 paths
        x = layers.Concatenate(axis=1)([layers.MaxPooling2D((2, 1))(x), layers.AveragePooling2D((2, 1))(x)])
    assert claims(keras.Model(image, x))


def test_the_maximum_of_a_relu_holds_until_something_computes():
    maker = GraphMaker()
    maker.add("ReLU", "six", "image", settings={"max_value": 6.0})
    maker.add("ReLU", "two", "image", settings={"max_value": 2.0})
    maker.add("ReLU", "open", "image")
    maker.add("Conv2D", "own", "image", settings={"activation": "relu6"})
    maker.add("MaxPooling2D", "pool", "two")
    maker.add("Concatenate", "both", "pool", "own")
    maker.add("Concatenate", "with_open", "six", "open")
    maker.add("Conv2D", "conv", "six")
    maker.add("Add", "sum", "six", "two")
    maker.add("UpSampling2D", "overshoots", "two", settings={"interpolation": "bicubic"})
    maker.add("ReLU", "again", "six", settings={"max_value": 7.0})
    graph = maker.graph("both", "with_open", "conv", "sum", "overshoots", "again")
    maxima = {"six": 6.0, "two": 2.0, "own": 6.0, "pool": 2.0, "both": 6.0, "again": 7.0}
    others = ("image", "open", "with_open", "conv", "sum", "overshoots")
    assert {node.name: ceiling(graph, node.name) for node in graph.nodes} == {**maxima, **dict.fromkeys(others, np.inf)}


def branches():
    """Return a model in which layers stand between a ReLU and a padded maximum, and the names of these branches."""
    make = {
        "bilinear": layers.UpSampling2D(2, interpolation="bilinear"),
        "bicubic": layers.UpSampling2D(2, interpolation="bicubic"),
        "mean": layers.AveragePooling2D(2),
        "softmax": layers.Softmax(),
        "joined": lambda x: layers.Concatenate()([x, layers.Permute((2, 1, 3))(x)]),
        "minus": lambda x: x - 1.0,
    }
    image = keras.Input((6, 6, 2))
    x = layers.ReLU()(image)
    ends = [
        layers.MaxPooling2D(3)(layers.ZeroPadding2D(1, name=f"{name}_zeros")(layer(x))) for name, layer in make.items()
    ]
    return keras.Model(image, ends), list(make)


def test_the_exported_file_says_the_same(tmp_path):
    model, names = branches()
    q_model = qdq.quantize_model(model, target="onnxruntime")
    qdq.calibrate(q_model, np.random.default_rng(0).normal(size=(2, 6, 6, 2)).astype(np.float32), verbose=False)
    qdq.export_onnx(q_model, tmp_path / "model.onnx")

    graph, file = q_model.plan.graph, Graph(onnx.load(tmp_path / "model.onnx"))
    claimed = [is_never_negative(graph, graph.node(f"{name}_zeros").inputs[0]) for name in names]
    assert claimed == [True, False, True, True, True, False]
    pools = [_behind(file, name, "MaxPool") for name in file.outputs]
    assert [_is_never_negative(file, pool.inputs[0]) for pool in pools] == claimed
    assert [_behind(file, pool.inputs[0], "Pad") is None for pool in pools] == claimed


def _behind(file, tensor, operator):
    """Return the node of a type that a tensor comes from, through pairs and transpositions; None for another one."""
    node = file.producer(tensor)
    while node is not None and node.op in ("DequantizeLinear", "QuantizeLinear", "Transpose"):
        node = file.producer(node.inputs[0])
    return node if node is not None and node.op == operator else None
