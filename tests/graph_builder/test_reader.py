"""Keras models become graphs: names and paths, shared layers, nested models, what is dropped and what is cast."""

import keras
import numpy as np
import pytest
from keras import layers, ops

import qdq_workbench as qdq
from qdq_workbench.errors import UnbuiltModelError, UnsupportedModelError
from qdq_workbench.graph_builder import TensorRef, bind_graph, build_graph


def names(graph):
    return [node.name for node in graph.nodes]


def image(name="image", shape=(6, 6, 2), **more):
    return keras.Input(shape, name=name, **more)


class Block(layers.Layer):
    """A composite layer: two layers, one of them called twice."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.up, self.drop = layers.Dense(4, name="up"), layers.Dropout(0.5, name="drop")

    def call(self, x, training=None):
        return self.up(self.drop(self.up(x), training=training))


def test_calls_of_one_layer_are_numbered_and_share_its_path():
    x = keras.Input((4,), name="x")
    shared = layers.Dense(4, name="shared")
    bound = bind_graph(keras.Model(x, layers.Add(name="add")([shared(shared(x)), shared(x)])))
    calls = [node for node in bound.graph.nodes if node.layer == "shared"]
    assert [node.name for node in calls] == ["shared", "shared#1", "shared#2"]
    assert [node.outputs for node in calls] == [("shared",), ("shared#1",), ("shared#2",)]
    assert [call.position for call in bound.calls if call.node.layer == "shared"] == [0, 1, 2]
    assert len({id(call.operation) for call in bound.calls if call.node.layer == "shared"}) == 1


def test_operations_of_one_name_get_names_of_their_own():
    x = keras.Input((4,), name="x")
    y = ops.add(ops.relu(x), ops.relu(x * 2.0))
    graph = build_graph(keras.Model(x, y))
    assert len(set(names(graph))) == len(graph.nodes) == 5
    assert len({node.layer for node in graph.nodes}) == 5


def test_nested_models_are_entered_with_paths_and_their_tensors_are_those_outside():
    inner_image = image("inside")
    inner = keras.Model(inner_image, layers.Conv2D(2, 3, name="conv")(inner_image), name="inner")
    x = image()
    model = keras.Model(
        x, layers.Flatten(name="flat")(keras.Sequential([inner, layers.ReLU(name="relu")], name="seq")(x))
    )
    graph = build_graph(model)
    assert names(graph) == ["image", "seq/inner/conv", "seq/relu", "flat"]
    conv, relu, flat = graph.nodes[1:]
    assert (conv.inputs, relu.inputs, flat.inputs) == (("image",), ("seq/inner/conv",), ("seq/relu",))
    assert graph.tensors["seq/relu"].shape == (None, 4, 4, 2)
    assert (graph.inputs, graph.outputs) == (("image",), ("flat",))


def test_a_model_that_is_its_own_input_keeps_the_name_of_the_tensor_outside():
    same = image("inside")
    x = image()
    layers.Identity(name="elsewhere")(same)  # Keras before 3.14 refuses an input that nothing reads
    graph = build_graph(keras.Model(x, layers.ReLU(name="relu")(keras.Model(same, same, name="same")(x))))
    assert names(graph) == ["image", "relu"]
    assert graph.nodes[1].inputs == ("image",)


def test_what_no_output_reads_is_dropped_but_inputs_stay():
    inner_image = image("inside")
    ends = [layers.ReLU(name="read")(inner_image), layers.Conv2D(2, 1, name="unread")(inner_image)]
    x, unread = image(), image("unread_input")
    layers.Identity(name="elsewhere")(unread)  # as above
    used = keras.Model(inner_image, ends, name="inner")(x)[0]
    bound = bind_graph(keras.Model([x, unread], used))
    assert names(bound.graph) == ["image", "unread_input", "inner/read"]
    assert set(bound.graph.tensors) == set(bound.tensors) == {"image", "unread_input", "inner/read"}
    assert [call.node.name for call in bound.calls] == ["inner/read"]


def test_a_nested_model_casts_what_it_is_given_to_its_own_type():
    tokens = keras.Input((3,), dtype="int32", name="tokens")
    inner = keras.Model(tokens, layers.Embedding(5, 2, name="embed")(tokens), name="inner")
    x = keras.Input((3,), name="x")
    graph = build_graph(keras.Model(x, inner(x)))
    assert names(graph) == ["x", "inner/cast", "inner/embed"]
    assert graph.tensors["inner/cast"].dtype == "int32"
    # Between floats it casts nothing: layers do so themselves.
    half = keras.Input((3,), dtype="float16", name="half")
    floats = keras.Model(half, layers.ReLU(name="relu")(half), name="inner")
    assert names(build_graph(keras.Model(x, floats(x)))) == ["x", "inner/relu"]
    same = keras.Input((3,), dtype="int32", name="same")
    assert names(build_graph(keras.Model(same, inner(same)))) == ["same", "inner/embed"]


def test_composite_layers_are_entered_unless_they_are_to_stay_whole():
    x = keras.Input((4,), name="x")
    model = keras.Model(x, layers.ReLU(name="relu")(Block(name="block")(x)))
    bound = bind_graph(model)
    graph = bound.graph
    assert names(graph) == ["x", "block/up", "block/drop", "block/up#1", "relu"]
    assert [call.position for call in bound.calls if call.node.layer == "block/up"] == [0, 1]
    assert "Block" in graph.blocks["block"]
    assert list(graph.blocks) == ["block"]
    whole = build_graph(model, enter_layers=False)
    assert names(whole) == ["x", "block", "relu"]
    assert whole.blocks == {}


def fixed_training(**arguments):
    """Return the `training` of the dropouts in a composite layer inside a nested model that is called so."""
    inside = keras.Input((4,), name="inside")
    inner = keras.Model(inside, layers.Dropout(0.5, name="last")(Block(name="block")(inside)), name="inner")
    x = keras.Input((4,), name="x")
    bound = bind_graph(keras.Model(x, inner(x, **arguments)))
    drops = [call for call in bound.calls if isinstance(call.operation, layers.Dropout)]
    return [call.kwargs.get("training") for call in drops]


def test_a_fixed_argument_of_a_nested_model_is_that_of_the_calls_inside():
    # Keras notes the default of a layer as if it had been given.
    assert fixed_training() == [None, False]
    assert fixed_training(training=False) == [False, False]
    assert fixed_training(training=True) == [True, True]


def test_the_argument_of_a_model_replaces_those_of_the_calls_inside_as_in_keras():
    inside = keras.Input((4,), name="inside")
    inner = keras.Model(inside, layers.Dropout(0.5, name="drop")(inside, training=True), name="inner")
    x = keras.Input((4,), name="x")
    for arguments, expected in (({}, True), ({"training": False}, False), ({"training": True}, True)):
        bound = bind_graph(keras.Model(x, inner(x, **arguments)))
        (drop,) = [call for call in bound.calls if isinstance(call.operation, layers.Dropout)]
        assert drop.kwargs["training"] is expected
    # Layers without the argument get none.
    bound = bind_graph(keras.Model(x, keras.Model(inside, layers.ReLU()(inside))(x, training=False)))
    assert all("training" not in call.kwargs for call in bound.calls)


def test_a_layer_that_computes_with_the_weight_of_another_one_stays_whole():
    table = layers.Embedding(5, 4, name="table")

    class Tied(layers.Layer):
        def __init__(self, **kwargs):
            super().__init__(**kwargs)
            self.norm = layers.LayerNormalization(name="norm")

        def call(self, x):
            return ops.matmul(self.norm(x), ops.transpose(table.embeddings))

    tokens = keras.Input((3,), dtype="int32", name="tokens")
    graph = build_graph(keras.Model(tokens, Tied(name="tied")(table(tokens))))
    assert names(graph) == ["tokens", "table", "tied"]
    assert "it computes with a weight of another layer by itself (table/embeddings)" in graph.nodes[-1].opaque


def test_structures_of_inputs_and_outputs_are_those_of_the_model():
    first, second = keras.Input((4,), name="first"), keras.Input((4,), name="second")
    added = layers.Add(name="add")([first, second])
    model = keras.Model(
        {"second": second, "first": first}, {"sum": added, "all": [added, layers.ReLU(name="relu")(first)]}
    )
    bound = bind_graph(model)
    assert bound.input_structure == {"second": TensorRef("second"), "first": TensorRef("first")}
    assert bound.output_structure["sum"] == TensorRef("add")
    assert bound.output_structure["all"] == [TensorRef("add"), TensorRef("relu")]
    assert set(bound.graph.outputs) == {"add", "relu"}
    assert bound.input_tensors["first"] is first
    assert bound.model is model


def test_a_layer_with_several_outputs_numbers_its_tensors():
    x = keras.Input((5, 3), name="x")
    outputs = layers.LSTM(2, return_state=True, name="lstm")(x)
    graph = build_graph(keras.Model(x, outputs))
    assert graph.nodes[1].outputs == ("lstm", "lstm:1", "lstm:2")
    assert graph.outputs == ("lstm", "lstm:1", "lstm:2")
    assert graph.tensors["lstm:1"].producer == "lstm"


def test_a_quantized_model_is_read_as_its_plan_has_it():
    x = keras.Input((4,), name="x")
    q_model = qdq.quantize_model(keras.Model(x, layers.ReLU(name="relu")(Block(name="block")(x))))
    inside = [node.name for node in build_graph(q_model).nodes]
    assert len(inside) == len(set(inside))
    data = np.ones((2, 4), "float32")
    assert q_model(data).shape == (2, 4)


def test_what_has_no_graph_is_refused():
    with pytest.raises(UnbuiltModelError):
        build_graph(keras.Sequential([layers.Dense(2)]))

    class Subclassed(keras.Model):
        def call(self, x):
            return x

    with pytest.raises(UnsupportedModelError):
        build_graph(Subclassed())
