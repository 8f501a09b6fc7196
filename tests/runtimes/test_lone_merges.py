"""Merges of a single tensor do nothing, and those of a tensor and a constant compute in float."""

import keras
import numpy as np
import onnx
import pytest
from keras import layers, ops
from runtimes_agreement import compare

import qdq_workbench as qdq
from qdq_workbench.export.litert.tflite_run import operators
from qdq_workbench.graph.op_kinds import vanishes

DATA = np.random.default_rng(0).normal(size=(12, 4)).astype("float32")
CONSTANT = np.array([[0.5, -0.25, 2.0, 1.0]], "float32")
MERGES = (layers.Add, layers.Average, layers.Concatenate, layers.Maximum, layers.Minimum, layers.Multiply)
WITH_CONSTANTS = (layers.Add, layers.Average, layers.Maximum, layers.Minimum, layers.Multiply, layers.Subtract)


def net(kinds, *constants):
    """A branch per class: a merge between two layers; for no class, nothing between them."""
    keras.utils.set_random_seed(1)
    x, outputs = keras.Input((4,), name="x"), []
    for kind in kinds:
        name = "nothing" if kind is None else kind.__name__.lower()
        first = layers.Dense(4, name=f"{name}_first")(x)
        merged = layers.Identity()(first) if kind is None else kind(name=name)([first, *constants])
        outputs.append(layers.Dense(3, name=f"{name}_last")(merged))
    return keras.Model(x, outputs)


def quantized(model, target, **entry):
    spec = qdq.QuantizationSpec()
    spec.add(**(entry or {"name": "*", "match": "glob", "quantize_output": True}))
    q_model = qdq.quantize_model(model, quantization_spec=spec, target=target)
    qdq.calibrate(q_model, DATA, verbose=False)
    return q_model


def check_file(q_model, target, folder):
    """Export, verify, and compare the explanation with what runs."""
    if target == "litert":
        qdq.export_tflite(q_model, folder / "model.tflite")
        qdq.files.verify_tflite(folder / "model.tflite", q_model, DATA).raise_if_failed()
        return operators((folder / "model.tflite").read_bytes())
    if target == "onnxruntime":
        compared, differing = compare(q_model, folder / "model.onnx")
        assert compared
        assert not differing
    else:
        qdq.export_onnx(q_model, folder / "model.onnx")
    qdq.verify_onnx(folder / "model.onnx", q_model, DATA).raise_if_failed()
    return []


@pytest.mark.parametrize("target", ["onnxruntime", "tensorrt", "openvino", "litert"])
def test_a_constant_beside_the_tensor_makes_a_merge_float(target, tmp_path):
    q_model = quantized(net(WITH_CONSTANTS, CONSTANT), target)
    explained = qdq.explain(q_model, target=target)
    for kind in WITH_CONSTANTS:
        layer = explained.for_layer(kind.__name__.lower())
        assert layer.status == "float"
        assert "a constant in float has no Q/DQ pair" in layer.reason
    check_file(q_model, target, tmp_path)


@pytest.mark.parametrize("target", ["onnxruntime", "tensorrt"])
def test_a_constant_that_an_add_layer_adds_becomes_a_part_of_the_bias_before_it(target, tmp_path):
    q_model = quantized(net([layers.Add], CONSTANT), target, name=["add_first", "add_last"])
    check_file(q_model, target, tmp_path)
    lowered = q_model.plan.onnx_lowering.nodes["add"]
    assert lowered.step == "absorbed"


@pytest.mark.parametrize("target", ["onnxruntime", "tensorrt", "openvino", "litert"])
def test_a_merge_of_one_tensor_has_no_operator_and_no_pair_of_its_own(target, tmp_path):
    q_model = quantized(net(MERGES), target)
    assert all(vanishes(q_model.plan.graph.node(kind.__name__.lower())) for kind in MERGES)
    alone = quantized(net([None]), target).plan.tensors
    assert len(q_model.plan.tensors) - 1 == len(MERGES) * (len(alone) - 1)  # the input's pair is read by all
    found = check_file(q_model, target, tmp_path)
    assert {each.name for each in found} <= {"QUANTIZE", "FULLY_CONNECTED", "DEQUANTIZE"}


def test_layers_that_read_a_tensor_behind_such_a_merge_and_beside_it(tmp_path):
    """Behind the merge they read the pair, and beside it the tensor in float."""
    x = keras.Input((4,), name="x")
    outputs = [ops.einsum("bc,bc->bc", kind(name=kind.__name__.lower())([x]), x) for kind in MERGES]
    spec_name = [kind.__name__.lower() for kind in MERGES]
    q_model = quantized(keras.Model(x, outputs), "onnxruntime", name=spec_name, quantize_output=False)
    check_file(q_model, "tensorrt", tmp_path)


@pytest.mark.parametrize("target", ["onnxruntime", "tensorrt"])
def test_the_batch_stays_open_behind_a_constant_that_keras_takes_for_one_sample(target, tmp_path):
    """As with a table of positions that is added to tokens; a reader of its batch is a Reshape, or a state of zeros."""
    keras.utils.set_random_seed(1)
    tokens = keras.Input((4, 4), name="x")
    positions = np.linspace(-1, 1, 16, dtype="float32").reshape(1, 4, 4)
    placed = layers.Add(name="placed")([layers.Dense(4, name="first")(tokens), positions])
    flat = layers.Dense(2, name="flat_head")(layers.Flatten(name="flat")(layers.Dense(3, name="second")(placed)))
    model = keras.Model(tokens, [flat, layers.ConvLSTM1D(2, 2, name="states")(layers.Reshape((2, 2, 4))(placed))])
    data = np.random.default_rng(0).normal(size=(6, 4, 4)).astype("float32")
    spec = qdq.QuantizationSpec()
    spec.add("*", match="glob", quantize_output=True)
    q_model = qdq.quantize_model(model, quantization_spec=spec, target=target)
    qdq.calibrate(q_model, data, verbose=False)
    path = qdq.export_onnx(q_model, tmp_path / "model.onnx").path
    qdq.verify_onnx(path, q_model, data).raise_if_failed()
    assert [value.type.tensor_type.shape.dim[0].dim_param for value in onnx.load(path).graph.output] == ["batch"] * 2
