"""Layers that read one tensor with several inputs, some of which have a pair: right files, and reads exchanged."""

import keras
import numpy as np
import pytest
from keras import layers, ops
from small_models import samples

import qdq_workbench as qdq
from qdq_workbench.export.insert_qdq import QDQWriter
from qdq_workbench.verification.mixed_reads import other_integers


@keras.saving.register_keras_serializable("tests")
class Crossed(layers.Layer):
    """A layer of a user, of which the inputs serve different purposes."""

    def call(self, inputs):
        return 2.0 * inputs[0] - ops.tanh(inputs[1])


#: By name: what reads a tensor several times, and an input with a pair.
READERS = {
    "ops.dot_product_attention": (lambda x: ops.dot_product_attention(x, x, x), 0),
    "Attention": (lambda x: layers.Attention(name="op")([x, x]), 1),
    "MultiHeadAttention": (lambda x: layers.MultiHeadAttention(2, 2, name="op")(x, x, x), 2),
    "Dot": (lambda x: layers.Dot(-1, name="op")([x, x]), 0),
    "ops.matmul": (lambda x: ops.matmul(x, x), 1),
    "ops.einsum": (lambda x: ops.einsum("...ij,...kj->...ik", x, x), 0),
    "Concatenate": (lambda x: layers.Concatenate(name="op")([x, x]), 1),
    "Subtract": (lambda x: layers.Subtract(name="op")([x, x]), 0),
    "a layer of a user": (lambda x: Crossed(name="op")([x, x]), 1),
}


def quantized(name, target="tensorrt"):
    """A convolution, whose result is in another layout in the file, and a reader of it; its own result has a pair."""
    read, index = READERS[name]
    keras.utils.set_random_seed(0)
    # Up to Keras 3.12 `Attention` takes three axes alone.
    shape, convolution = ((16, 3), layers.Conv1D) if name == "Attention" else ((4, 4, 3), layers.Conv2D)
    image = keras.Input(shape, name="image")
    hidden = convolution(4, 1, activation="sigmoid", name="conv")(image)
    model = keras.Model(image, layers.Activation("tanh", name="last")(read(hidden)))
    reader = next(node for node in qdq.build_graph(model).nodes if node.inputs.count("conv") > 1)
    spec = qdq.QuantizationSpec()
    spec.add(reader.layer, quantize_input=True, quantize_output=True, quantization_index=[index])
    for layer in ("conv", "last"):
        spec.add(layer, quantize_input=False, quantize_weight=False, quantize_output=False)
    q_model = qdq.quantize_model(model, quantization_spec=spec, target=target)
    qdq.calibrate(q_model, samples(model), verbose=False)
    assert [p.input_index for p in q_model.plan.placements if p.site == "input" and p.tensor == "conv"] == [index]
    return q_model


def exchanged(monkeypatch):
    """Let one node that reads the pair read the tensor, and all other readers of the tensor the pair."""
    join = QDQWriter.join_pair

    def wrong(self, name, encoding, source, placeholder):
        if name == "conv":
            graph = self._graph
            ends = {source: placeholder, placeholder: source}
            reads = {node: list(node.inputs) for end in ends for node in graph.readers(end) if node.op != "Shape"}
            for node, tensors in reads.items():
                graph.set_inputs(node, [ends.get(tensor, tensor) for tensor in tensors])
        join(self, name, encoding, source, placeholder)

    monkeypatch.setattr(QDQWriter, "join_pair", wrong)


@pytest.mark.parametrize("name", READERS)
def test_a_right_file_passes_and_one_with_exchanged_reads_is_refused(name, monkeypatch, tmp_path):
    q_model = quantized(name)
    report = qdq.verify_onnx(qdq.export_onnx(q_model, tmp_path / "model.onnx").path, q_model).raise_if_failed()
    assert "mixed reads" in [check.name for check in report.checks]
    exchanged(monkeypatch)
    report = qdq.verify_onnx(qdq.export_onnx(q_model, tmp_path / "model.onnx").path, q_model)
    assert "mixed reads" in [check.name for check in report.checks if not check.passed], report.summary()


@pytest.mark.parametrize("target", ["onnxruntime", "openvino"])
def test_attentions_for_other_targets(target, tmp_path):
    q_model = quantized("ops.dot_product_attention", target)
    qdq.verify_onnx(qdq.export_onnx(q_model, tmp_path / "model.onnx").path, q_model).raise_if_failed()


def test_one_more_input_that_reads_the_pair_is_refused(monkeypatch, tmp_path):
    q_model = quantized("MultiHeadAttention")
    join = QDQWriter.join_pair

    def wrong(self, name, encoding, source, placeholder):
        if name == "conv":
            node = next(node for node in self._graph.readers(source) if "query" in node.name)
            self._graph.replace_reads(source, placeholder, [node])
        join(self, name, encoding, source, placeholder)

    monkeypatch.setattr(QDQWriter, "join_pair", wrong)
    report = qdq.verify_onnx(qdq.export_onnx(q_model, tmp_path / "model.onnx").path, q_model)
    assert [check.name for check in report.checks if not check.passed] == ["mixed reads"]


def test_other_integers_are_near_the_least_and_the_greatest_in_the_same_order():
    codes = np.array([[-100, -20], [0, 20], [92, 100]], np.int8)
    np.testing.assert_array_equal(other_integers(codes), np.array([[-100, -90], [88, 90], [99, 100]], np.int8))
    assert other_integers(codes).dtype == np.int8
    assert (np.diff(other_integers(np.arange(256, dtype=np.uint8)).astype(int)) >= 0).all()
    assert other_integers(np.zeros((0, 2), np.uint8)).shape == (0, 2)
