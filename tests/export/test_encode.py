"""The grids on which files hold activations."""

import dataclasses

import onnx
import pytest
from onnx import numpy_helper
from runtimes_agreement import compare
from small_models import residual_net, samples

import qdq_workbench as qdq
from qdq_workbench.export.encode import encode_activations

GRIDS = {
    "signed": {"signed": True, "symmetric": False},
    "signed and symmetric": {"signed": True, "symmetric": True},
    "unsigned and symmetric": {"signed": False, "symmetric": True},
    "signed, of 4 bits": {"signed": True, "num_bits": 4},
}


def calibrated(name, grid):
    """A residual network for a target with other activations."""
    target = qdq.get_target(name)
    target = dataclasses.replace(target, activation=target.activation.replace(**grid))
    model = residual_net()
    q_model = qdq.quantize_model(model, target=target)
    qdq.calibrate(q_model, samples(model), verbose=False)
    return q_model


def zero_points(path):
    """The zero points of the pairs in a file, by the name of the pair."""
    graph = onnx.load(path).graph
    constants = {tensor.name: numpy_helper.to_array(tensor) for tensor in graph.initializer}
    nodes = [node for node in graph.node if node.op_type == "QuantizeLinear"]
    return {node.name.rpartition("/")[0]: constants[node.input[2]] for node in nodes}


@pytest.mark.parametrize("grid", GRIDS)
def test_a_file_for_onnx_runtime_holds_activations_as_unsigned_integers(grid, tmp_path):
    """The values are the same, and where a tensor has two readers, only those have integer kernels on x86."""
    q_model = calibrated("onnxruntime", GRIDS[grid])
    compared, differing = compare(q_model, tmp_path / "model.onnx")
    assert compared > 0
    assert differing == []
    found, planned = zero_points(tmp_path / "model.onnx"), encode_activations(q_model)
    assert found.keys() == planned.keys()
    for name, zero_point in found.items():
        spec = planned[name].spec
        assert zero_point.dtype == "uint8"
        assert zero_point == planned[name].zero_point + (2 ** (spec.num_bits - 1) if spec.signed else 0)
    report = qdq.verify_onnx(tmp_path / "model.onnx", q_model)
    assert report.passed, report.summary()


@pytest.mark.parametrize("name", ["tensorrt", "openvino"])
def test_files_for_other_runtimes_hold_them_as_planned(name, tmp_path):
    q_model = calibrated(name, GRIDS["signed and symmetric"])
    qdq.export_onnx(q_model, tmp_path / "model.onnx")
    assert {(str(found.dtype), int(found)) for found in zero_points(tmp_path / "model.onnx").values()} == {("int8", 0)}


def test_a_signed_activation_with_two_readers_runs_on_integers(tmp_path):
    q_model = calibrated("onnxruntime", GRIDS["signed"])
    assert {entry.status for entry in qdq.explain(q_model).layers} == {"int8"}
