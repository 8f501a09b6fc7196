"""What the graph pane gets: the graph as arrays, the state of a plan as short texts, and the changes between two."""

import json

import pytest
from mock_graphs import GraphMaker

import qdq_workbench as qdq
from qdq_widgets.graph_payload import disabled_reasons, graph_payload, plan_state, state_changes
from qdq_workbench.graph.model_graph import ModelGraph, Node, Tensor, Weight


def entries(**wishes_of):
    spec = qdq.QuantizationSpec()
    for name, wishes in wishes_of.items():
        spec.add(name, **wishes)
    return spec


@pytest.fixture(scope="module")
def graph():
    maker = GraphMaker()
    maker.add("Conv2D", "conv", "image")
    maker.add("Activation", "relu", "conv")
    maker.add("Conv2D", "left", "relu")
    maker.add("Add", "sum", "left", "relu")
    return maker.graph("sum")


# ---------------------------------------------------------------------- the graph


def test_arrays_have_one_entry_per_node(graph):
    payload = graph_payload(graph, disabled_reasons(qdq.plan_placement(graph)))
    for key in ("names", "class_of", "shape_of", "parameters", "inputs"):
        assert len(payload[key]) == len(graph.nodes)
    assert payload["inputs"] == [[], [0], [1], [2], [3, 2]]
    assert payload["shapes"] == ["8\u00d78\u00d74"]
    assert payload["parameters"] == [0, 148, 0, 148, 0]
    assert payload["class_of"] == [0, 1, 2, 1, 3]
    assert payload["classes"] == ["InputLayer", "Conv2D", "Activation", "Add"]
    assert (payload["model_inputs"], payload["model_outputs"]) == ([0], [4])
    assert json.loads(json.dumps(payload)) == payload


def test_further_outputs_and_calls():
    split = Node("split", "split", "Split", inputs=("image",), outputs=("split", "split:1"))
    maker = GraphMaker()
    maker.add("Conv2D", "conv", "image")
    maker.add("Conv2D", "conv#1", "conv", layer="conv")
    nodes = (*maker.nodes, split, Node("add", "add", "Add", inputs=("split:1", "split"), outputs=("add",)))
    extra = {name: Tensor(name, (None, 4), "float32", name.split(":")[0]) for name in ("split", "split:1", "add")}
    graph = ModelGraph("net", nodes, {**maker.tensors, **extra}, ("image",), ("add",))
    payload = graph_payload(graph, {})
    assert payload["further_outputs"] == [[3, 1]]
    assert payload["inputs"][4] == [5, 3]
    assert payload["calls"] == [[2, 1]]
    assert payload["shapes"][payload["shape_of"][3]] == "4, 4"


def test_shapes_are_without_the_batch_and_say_what_is_open():
    maker = GraphMaker(shape=(None, None, 3))
    maker.add("Flatten", "sum", "image", shape=(None,))
    payload = graph_payload(maker.graph("sum"), {})
    assert [payload["shapes"][index] for index in payload["shape_of"]] == ["?\u00d73", "scalar"]


def test_operations_and_layers_that_nobody_can_look_into_are_listed():
    maker = GraphMaker()
    maker.add("add", "plus", "image", is_operation=True)
    maker.add("Lambda", "mine", "plus", opaque=True)
    payload = graph_payload(maker.graph("mine"), {})
    assert (payload["operations"], payload["opaque"]) == ([1], [2])


def test_eight_hundred_nodes_are_small():
    maker, last = GraphMaker(shape=(None, 8, 8, 16)), "image"
    for k in range(815):
        last = maker.add(("Conv2D", "Add")[k % 2], f"block{k // 14}_layer_with_a_name_{k}", last)
    plan = qdq.plan_placement(maker.graph(last))
    sent = json.dumps([graph_payload(plan.graph, disabled_reasons(plan)), plan_state(plan)])
    assert len(sent) < 100_000


# ---------------------------------------------------------------------- what cannot be switched


def test_refusals_say_why():
    maker = GraphMaker("ids", dtype="int32")
    maker.add("Cast", "cast", "ids")
    maker.add("MaxPooling2D", "pool", "cast")
    maker.add("Argmax", "best", "pool", dtype="int64")
    maker.add("Zeros", "zeros")
    graph = maker.graph("best")
    reasons = disabled_reasons(qdq.plan_placement(graph))
    switch_readers = "an input of the model: quantize the input of the layers that read it"
    assert reasons["ids", "input"] == reasons["ids", "output"] == switch_readers
    assert reasons["cast", "input"] == "it reads no tensor of real numbers"
    assert reasons["zeros", "input"] == "it has no input"
    assert reasons["best", "output"] == "its output is not a tensor of real numbers"
    assert reasons["pool", "weight"] == "MaxPooling2D has no weights"
    assert ("pool", "input") not in reasons
    payload = graph_payload(graph, reasons)
    refused = {site: [payload["refusals"][index] for index in found] for site, found in payload["refused"].items()}
    assert refused["input"] == [switch_readers, "it reads no tensor of real numbers", "", "", "it has no input"]
    assert refused["weight"][2] == "MaxPooling2D has no weights"


def test_an_operation_that_is_called_as_an_input_is_refused_as_an_operation():
    maker = GraphMaker("ids", dtype="int32")
    graph = maker.graph(maker.add("InputLayer", "own", "ids", is_operation=True, dtype="int32"))
    reasons = disabled_reasons(qdq.plan_placement(graph))
    assert reasons["own", "input"] == "it reads no tensor of real numbers"
    assert reasons["own", "output"] == "its output is not a tensor of real numbers"


def test_weights_that_stay_in_float_have_the_reason_of_the_plan():
    maker = GraphMaker()
    maker.add("Conv2D", "conv", "image")
    maker.add("BatchNormalization", "norm", "conv", weights=(Weight("gamma", (4,)),))
    reasons = disabled_reasons(qdq.plan_placement(maker.graph("norm")))
    assert ("conv", "weight") not in reasons  # although its bias stays in float
    assert reasons["norm", "weight"].startswith("the parameters of a BatchNormalization are folded into the layer")


def test_single_inputs_without_real_numbers_are_named():
    maker = GraphMaker("ids", dtype="int32")
    maker.add("NotEqual", "mask", "ids", dtype="bool")
    maker.add("Embedding", "embed", "ids")
    maker.add("LSTM", "lstm", "embed", "mask")
    payload = graph_payload(maker.graph("lstm"), disabled_reasons(qdq.plan_placement(maker.graph("lstm"))))
    assert payload["unreal"] == [[3, 1]]


# ---------------------------------------------------------------------- the plan


def test_states_say_what_is_quantized(graph):
    state = plan_state(qdq.plan_placement(graph, quantization_spec=entries(sum={"quantization_index": [1]})))
    assert state["states"] == [":0:0", "1:1:0", "0:0:0", "1:1:0", "01:0:0"]
    assert state["pairs"] == {"0": ["int8 symmetric"], "2": ["int8 symmetric"]}
    assert state["reasons"][state["why"][4]].startswith("spec[0]: the entry for")
    assert (state["revision"], state["target"], state["mode"]) == (0, "tensorrt", "full")


def test_an_output_pair_serves_all_readers(graph):
    spec = entries(relu={"quantize_input": False, "quantize_output": True}, left={"quantize_input": False})
    state = plan_state(qdq.plan_placement(graph, quantization_spec=spec))
    assert state["states"][2:] == ["0:0:1", "2:1:0", "02:0:0"]


@pytest.mark.parametrize("target", ["tensorrt", "onnxruntime"])
def test_reasons_and_states_are_those_of_the_plan(graph, target):
    spec = entries(sum={"quantization_index": [1]}, relu={"quantize_input": False, "quantize_output": True})
    plan = qdq.plan_placement(graph, quantization_spec=spec, target=target)
    state = plan_state(plan)
    for node, text, why in zip(graph.nodes, state["states"], state["why"], strict=True):
        found = plan.for_layer(node.name)
        inputs, weights, output = text.split(":")
        on = [plan.input_placement(node.name, index) is not None for index in range(len(node.inputs))]
        assert [code != "0" for code in inputs] == on
        assert [index for index, code in enumerate(inputs) if code == "1"] == list(found.input_indices)
        assert (weights != "0", output == "1") == (found.quantize_weight, found.quantize_output)
        assert state["reasons"][why].startswith(f"{found.author}: {found.reason}")


def test_who_was_overruled_is_said(graph):
    spec = entries(Conv2D={"is_keras_class": True}, left={"quantize_weight": False})
    state = plan_state(qdq.plan_placement(graph, quantization_spec=spec))
    assert state["reasons"][state["why"][3]].endswith("quantizes its input (instead of spec[0])")


def widths(graph, name, **sites):
    config, inputs, output = qdq.LayerQuantizeConfig(**sites), "activation" in sites, "output" in sites
    wishes = {"quantize_config": config, "quantize_input": inputs, "quantize_output": output}
    plan = qdq.plan_placement(graph, "partial", entries(**{name: wishes}), target="onnxruntime")
    return [state.split(":", 3)[3:] for state in plan_state(plan)["states"]]


def test_widths_other_than_eight_bits_are_listed(graph):
    assert widths(graph, "conv", weight={"num_bits": 8}) == [[]] * 5
    assert widths(graph, "conv", weight={"num_bits": 4}) == [[], ["w=4"], [], [], []]
    assert widths(graph, "relu", activation={"num_bits": 16}) == [[], [], ["i0=16"], [], []]
    # The pair behind `relu` has 16 bits for both of its readers.
    assert widths(graph, "relu", output={"num_bits": 16}) == [[], [], ["o=16"], ["i0=16"], ["i1=16"]]


@pytest.mark.parametrize(
    ("settings", "text"), [({"num_bits": 4, "block_size": 64}, "w=4,b=64"), ({"block_size": 64}, "b=64")]
)
def test_sizes_of_blocks_are_listed_at_every_width(settings, text):
    maker = GraphMaker(shape=(None, 128))
    maker.add("Dense", "head", "image", shape=(None, 4), weights=(Weight("kernel", (128, 4)),))
    assert widths(maker.graph("head"), "head", weight=settings) == [[], [text]]


def test_a_pair_says_with_which_tensor_it_shares_its_scale():
    maker = GraphMaker()
    for name in ("left", "right"):
        maker.add("Conv2D", name, "image")
    maker.add("Concatenate", "joined", "left", "right", shape=(None, 8, 8, 8))
    maker.add("Conv2D", "last", "joined")
    state = plan_state(qdq.plan_placement(maker.graph("last"), target="litert"))
    groups = {key: grids[0] for key, grids in state["pairs"].items()}
    shared = [text for text in groups.values() if "one scale with" in text]
    assert shared
    assert groups["1"].startswith("int8 asymmetric")
    assert {text.partition(", ")[2] for text in shared} == {"one scale with left"}
    assert "one scale" not in groups["1"]  # that of the tensor itself


# ---------------------------------------------------------------------- changes


def test_changes_are_only_what_differs(graph):
    one = plan_state(qdq.plan_placement(graph))
    other = plan_state(qdq.plan_placement(graph, quantization_spec=entries(left={"quantize_input": False})))
    changes = state_changes(one, other)
    assert changes["states"] == {"3": "0:1:0"}
    assert list(changes["why"]) == ["3"]
    assert changes["pairs"] == {"2": []}
    assert state_changes(one, one) | {"target": "", "mode": ""} == {
        "target": "",
        "mode": "",
        "states": {},
        "why": {},
        "pairs": {},
    }


def test_reasons_are_compared_by_their_texts_and_pairs_by_their_grids():
    state = {"target": "a", "mode": "full", "states": ["0", "0"], "pairs": {"0": ["int8"], "1": ["int8"]}}
    old = {**state, "why": [0, 1], "reasons": ["first", "second"]}
    new = {
        **state,
        "why": [1, 1],
        "reasons": ["first", "second"],
        "pairs": {"0": ["int8"], "1": ["int4"], "2": ["int8"]},
    }
    changes = state_changes(old, new)
    assert (changes["why"], changes["pairs"]) == ({"0": "second"}, {"1": ["int4"], "2": ["int8"]})
    renumbered = {**state, "why": [1, 0], "reasons": ["second", "first"], "target": "b", "mode": "partial"}
    changes = state_changes(old, renumbered)
    assert (changes["why"], changes["target"], changes["mode"]) == ({}, "b", "partial")
