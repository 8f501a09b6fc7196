"""What a file holds of every layer is read from its graph: what is taken out of the graph is gone from the answer."""

import keras
import numpy as np
import onnx
import pytest
from keras import layers

import qdq_workbench as qdq
from qdq_workbench.errors import UnverifiableFileError
from qdq_workbench.files import read_layers


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    keras.utils.set_random_seed(0)
    image = keras.Input((6, 6, 2), name="image")
    x = layers.BatchNormalization(name="norm")(layers.Conv2D(3, 3, name="conv")(image))
    x = layers.Flatten(name="flat")(layers.Dropout(0.1, name="drop")(layers.ReLU(name="relu")(x)))
    q_model = qdq.quantize_model(keras.Model(image, layers.Dense(2, name="head")(x)), target="onnxruntime")
    qdq.calibrate(q_model, np.random.default_rng(0).random((4, 6, 6, 2), "float32"), verbose=False)
    return qdq.export_onnx(q_model, tmp_path_factory.mktemp("held") / "model.onnx").path


def test_pairs_weights_and_operators_are_those_of_the_plan(path):
    held = read_layers(path)
    assert {*held.pairs, *held.weights} == {item.name for item in held.plan.tensors}
    assert held.operators == {"conv": {"Conv": 1}, "relu": {"Relu": 1}, "head": {"MatMul": 1}}
    assert held.problems == ()
    grid = held.pairs["image"]
    assert (grid.dtype, grid.scales) == ("uint8", 1)
    assert grid.scale == pytest.approx(1 / 255, rel=0.02)
    assert held.weights["conv/kernel"].label == "int8, 3 scales"


def test_it_is_read_from_the_graph_and_not_from_the_plan(path, tmp_path):
    file = onnx.load(path)
    nodes = file.graph.node
    pair = {node.op_type: node for node in nodes if node.name.startswith("image/") and node.op_type.endswith("Linear")}
    source = pair["QuantizeLinear"].input[0]
    relu = next(node for node in nodes if node.op_type == "Relu")
    for node in nodes:
        for place, name in enumerate(node.input):
            if name == pair["DequantizeLinear"].output[0]:
                node.input[place] = source
            elif name == relu.output[0]:
                node.input[place] = relu.input[0]
    for node in (*pair.values(), relu):
        nodes.remove(node)
    onnx.save(file, tmp_path / "other.onnx")

    held = read_layers(tmp_path / "other.onnx")

    assert "image" not in held.pairs
    assert "image" in {item.name for item in held.plan.tensors}
    assert "relu" not in held.operators


def test_a_file_without_a_plan_is_refused(path, tmp_path):
    file = onnx.load(path)
    del file.metadata_props[:]
    onnx.save(file, tmp_path / "foreign.onnx")
    with pytest.raises(UnverifiableFileError, match="export_onnx"):
        read_layers(tmp_path / "foreign.onnx")
