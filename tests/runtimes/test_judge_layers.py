"""The entries of explanations: taken again from the last one of the graph where they are equal, else new."""

import keras
import pytest
from keras import layers
from mock_graphs import chain

import qdq_workbench as qdq
from qdq_workbench.graph.model_graph import ModelGraph

CHANGES = ({}, {"quantize_weight": False}, {"quantize_output": True}, {"quantize_input": False}, {})


def planned(graph, target, settings):
    spec = qdq.QuantizationSpec()
    if settings:
        spec.add("first", **settings)
    return qdq.plan_placement(graph, quantization_spec=spec, target=target)


@pytest.fixture
def graph():
    return chain(("Conv2D", "first"), ("ReLU", "relu"), ("Conv2D", "second"), ("Softmax", "scores"))


def test_plan_after_plan_is_explained_as_on_a_fresh_graph(graph):
    for settings in CHANGES:
        for target in qdq.target_names():
            fresh = ModelGraph.from_dict(graph.to_dict())
            known = qdq.explain(planned(graph, target, settings))
            assert known.layers == qdq.explain(planned(fresh, target, settings)).layers


def test_equal_entries_are_the_same_objects(graph):
    before, after = (qdq.explain(planned(graph, "tensorrt", settings)) for settings in CHANGES[:2])
    assert before.for_layer("second") is after.for_layer("second")
    assert before.for_layer("first") != after.for_layer("first")
    assert before.for_layer("first").status == "int8"


def test_costs_of_a_shared_layer_are_those_of_its_calls_and_its_weights_once():
    image = keras.Input((4, 4, 3))
    conv = layers.Conv2D(3, 1, use_bias=False, name="conv")
    found = qdq.explain(keras.Model(image, conv(conv(image))), target="tensorrt").for_layer("conv")
    assert (found.macs, found.int8_macs) == (2 * 16 * 9, 2 * 16 * 9)
    assert (found.bytes, found.int8_bytes) == (4 * 9, 4 * 9)
