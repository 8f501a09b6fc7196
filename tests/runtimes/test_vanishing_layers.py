"""A layer without an operator in the file changes no verdict, wherever it stands: the file is the same without it."""

import dataclasses

import keras
import pytest
from keras import layers
from mock_graphs import GraphMaker, chain
from runtimes.test_openvino import computed_on_integers

import qdq_workbench as qdq
from qdq_workbench.graph.model_graph import ModelGraph, Node


def pools():
    return chain(
        ("Conv2D", "conv"),
        ("ReLU", "relu"),
        ("MaxPooling2D", "pool"),
        ("Conv2D", "next"),
        ("BatchNormalization", "norm"),
        ("ReLU", "last_relu"),
        ("GlobalAveragePooling2D", "mean"),
        ("Dense", "head"),
        ("Softmax", "scores"),
    )


def branches():
    maker = GraphMaker()
    for kind, name, *inputs in (
        ("Conv2D", "stem", "image"),
        ("BatchNormalization", "stem_norm", "stem"),
        ("ReLU", "stem_relu", "stem_norm"),
        ("Conv2D", "conv", "stem_relu"),
        ("BatchNormalization", "norm", "conv"),
        ("Add", "sum", "norm", "stem_relu"),
        ("ReLU", "relu", "sum"),
        ("Conv2D", "left", "relu"),
        ("Conv2D", "right", "relu"),
        ("Concatenate", "both", "left", "right"),
        ("MaxPooling2D", "pool", "both"),
        ("Conv2D", "behind", "pool"),
        ("UpSampling2D", "up", "behind"),
        ("Conv2D", "last", "up"),
    ):
        maker.add(kind, name, *inputs)
    return maker.graph("last")


def activations():
    return chain(
        ("ReLU", "first"),
        ("MaxPooling2D", "pool"),
        ("ReLU", "again"),
        ("LSTM", "floats"),
        ("ReLU", "behind_floats"),
        ("Dense", "head"),
    )


def with_dropout(graph, tensor):
    """Return the graph with a Dropout behind a tensor, for all of its readers."""
    nodes = []
    for node in graph.nodes:
        nodes.append(
            dataclasses.replace(node, inputs=tuple("drop" if name == tensor else name for name in node.inputs))
        )
        if tensor in node.outputs:
            nodes.append(Node("drop", "drop", "Dropout", inputs=(tensor,), outputs=("drop",)))
    tensors = {**graph.tensors, "drop": dataclasses.replace(graph.tensors[tensor], name="drop", producer="drop")}
    return ModelGraph(graph.name, tuple(nodes), tensors, graph.inputs, graph.outputs)


def verdicts(graph, target, cases):
    plan = qdq.plan_placement(graph, target=target, custom_qdq_cases=cases)
    return {layer.layer: (layer.status, layer.rule) for layer in qdq.explain(plan).layers}


@pytest.mark.parametrize("cases", [[], [qdq.AutoQDQCase()]], ids=["default", "auto"])
@pytest.mark.parametrize("target", ["tensorrt", "onnxruntime", "openvino", "litert"])
@pytest.mark.parametrize("make", [pools, branches, activations])
def test_a_dropout_anywhere_changes_no_verdict(make, target, cases):
    graph = make()
    expected = verdicts(graph, target, cases)
    # A normalization is not folded into a layer with a Dropout between them.
    folded = {node.inputs[0] for node in graph.nodes if node.is_a("BatchNormalization")}
    for tensor in graph.tensors:
        if tensor in {*graph.outputs, *folded}:
            continue
        found = verdicts(with_dropout(graph, tensor), target, cases)
        assert found.pop("drop")[1].endswith("-VANISHES")
        assert found == expected, tensor


@pytest.mark.parametrize("cases", [[], [qdq.AutoQDQCase()]], ids=["default", "auto"])
def test_openvino_computes_what_is_said_of_sums_and_pools_beside_a_dropout(cases, tmp_path):
    keras.utils.set_random_seed(0)
    image = keras.Input((8, 8, 4), name="image")
    stem = layers.ReLU(name="stem_relu")(layers.Conv2D(8, 3, padding="same", name="stem")(image))
    branch = layers.BatchNormalization(name="norm")(layers.Conv2D(8, 3, padding="same", name="conv")(stem))
    total = layers.Add(name="sum")([layers.Dropout(0.5, name="drop")(branch), stem])
    pooled = layers.Dropout(0.5, name="drop_pooled")(layers.MaxPooling2D(name="pool")(total))
    model = keras.Model(image, layers.Conv2D(4, 3, name="last")(pooled))
    q_model = qdq.quantize_model(model, target="openvino", custom_qdq_cases=cases)
    expected = {"sum": True, "pool": bool(cases)}
    found = qdq.explain(q_model)
    assert {name: found.for_layer(name).status == "int8" for name in expected} == expected
    assert computed_on_integers(q_model, expected, tmp_path) == expected
