"""Networks whose layers have both layouts: Transposes that the readers need do not part a layer."""

import keras
import numpy as np
import onnx
import pytest
from keras import layers

import qdq_workbench as qdq
from qdq_workbench.graph.operators import CONVOLUTIONS

FIRST = {"data_format": "channels_first", "bias_initializer": keras.initializers.RandomNormal(seed=0)}
# The converter leaves the biases of these apart.
WRITERS = {
    "dilated": lambda: layers.Conv2D(5, 2, dilation_rate=2, padding="same", name="writer", **FIRST),
    "with a ReLU": lambda: layers.Conv2D(5, 2, dilation_rate=2, activation="relu", name="writer", **FIRST),
    "DepthwiseConv2D": lambda: layers.DepthwiseConv2D(2, name="writer", **FIRST),
}
READERS = {
    "UpSampling2D": lambda: layers.UpSampling2D(2, name="reader"),
    "Conv2D": lambda: layers.Conv2D(4, 1, use_bias=False, name="reader"),
}


@pytest.mark.parametrize("target", ["onnxruntime", "tensorrt"])
@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("writer", WRITERS)
def test_a_bias_stays_with_its_convolution_where_the_reader_has_the_other_layout(writer, reader, target, tmp_path):
    x = keras.Input((4, 6, 8), name="x")
    y = READERS[reader]()(WRITERS[writer]()(x))
    images = np.random.default_rng(0).normal(size=(8, 4, 6, 8)).astype("float32")
    q_model = qdq.quantize_model(keras.Model(x, y), target=target)
    qdq.calibrate(q_model, images, verbose=False)
    path = qdq.export_onnx(q_model, tmp_path / "model.onnx").path
    nodes = onnx.load(path).graph.node
    assert "Add" not in {node.op_type for node in nodes}
    found = [node for node in nodes if node.op_type in CONVOLUTIONS]
    assert sorted(len(node.input) for node in found) == [2] * (reader == "Conv2D") + [3]
    qdq.verify_onnx(path, q_model, images).raise_if_failed()
