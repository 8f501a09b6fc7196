"""A layer has one name in Netron (the nodes of the file), in `explain` and in the graph pane, nested or shared."""

import keras
import onnx
import pytest
from small_models import nested_net, samples

import qdq_workbench as qdq
from qdq_widgets.graph_view import GraphView
from qdq_workbench.conversion.engine.rebuild import keras_name

LAYERS = ("backbone/conv", "backbone/norm", "backbone/relu", "shared", "add", "relu", "pool", "head")
CALLED_TWICE = ("backbone/conv", "backbone/norm", "backbone/relu", "shared")


@pytest.fixture(scope="module")
def views(tmp_path_factory):
    keras.backend.clear_session()  # Keras counts the names of its operations anew
    model = nested_net()
    q_model = qdq.quantize_model(model, target="onnxruntime")
    qdq.calibrate(q_model, samples(model), verbose=False)
    path = qdq.export_onnx(q_model, tmp_path_factory.mktemp("names") / "model.onnx").path
    return onnx.load(path).graph.node, qdq.explain(q_model), GraphView(q_model.plan)


def test_the_pane_shows_every_call_of_the_explained_layers(views):
    _, explanation, pane = views
    assert tuple(entry.layer for entry in explanation.layers) == LAYERS
    calls = {f"{name}#1" for name in CALLED_TWICE}
    assert set(pane.graph["names"]) == {"image", *LAYERS, *calls}
    first = {pane.graph["names"][call]: pane.graph["names"][owner] for call, owner in pane.graph["calls"]}
    assert first == {f"{name}#1": name for name in CALLED_TWICE}
    for entry in explanation.layers:
        pane.select(entry.layer)
        assert set(pane.selection) == {entry.layer, f"{entry.layer}#1"} & set(pane.graph["names"])


def test_computing_nodes_of_the_file_begin_with_their_layer(views):
    nodes, explanation, _ = views
    layers = {keras_name(entry.layer): entry.layer for entry in explanation.layers}
    computing = [node for node in nodes if node.op_type not in ("QuantizeLinear", "DequantizeLinear", "Transpose")]
    found = {layers[node.name.split("/")[0]] for node in computing}  # KeyError where a node is nobody's
    assert found == set(LAYERS) - {"backbone/norm"}  # it is folded
    convolutions = sorted(layers[node.name.split("/")[0]] for node in computing if node.op_type == "Conv")
    assert convolutions == ["backbone/conv", "backbone/conv", "shared", "shared"]


def test_pairs_of_the_file_are_called_as_the_nodes_of_the_pane(views):
    nodes, _, pane = views
    quantized = {node.name.removesuffix("/QuantizeLinear") for node in nodes if node.op_type == "QuantizeLinear"}
    assert quantized <= set(pane.graph["names"])
    assert {"backbone/relu#1", "shared#1", "image", "pool"} <= quantized
    constants = [node.name for node in nodes if node.op_type == "DequantizeLinear" and "/kernel/" in node.name]
    assert constants == [f"{name}/kernel/DequantizeLinear" for name in ("backbone/conv", "shared", "head")]
