"""Outputs that are infinite, because a small number in front of a layer rounds to 0: compared like any other value."""

import keras
import numpy as np
import onnx
import pytest
from keras import ops
from onnx import TensorProto, helper

import qdq_workbench as qdq
from qdq_workbench.verification.alone import OptimizationParity
from qdq_workbench.verification.differences import apart, mean_of_numbers
from qdq_workbench.verification.parity import Parity

DATA = np.array([[0.01, 200.0], [50.0, 0.02], [9.0, 100.0]], np.float32)


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    x = keras.Input((2,), name="x")
    spec = qdq.QuantizationSpec()
    spec.add("Rsqrt", is_keras_class=True, quantize_input=True)
    q_model = qdq.quantize_model(keras.Model(x, ops.rsqrt(x)), quantization_spec=spec, target="onnxruntime")
    qdq.calibrate(q_model, DATA, verbose=False, freeze=True)
    assert np.isinf(np.asarray(q_model(DATA))).sum() == 2
    return q_model, qdq.export_onnx(q_model, tmp_path_factory.mktemp("file") / "model.onnx").path


@pytest.fixture(scope="module")
def clipped(exported):
    """A file that returns 1 where its model is infinite."""
    proto = onnx.load(exported[1])
    (output,) = proto.graph.output
    last = next(node for node in proto.graph.node if output.name in node.output)
    last.output[:] = ["unclipped"]
    proto.graph.initializer.append(helper.make_tensor("one", TensorProto.FLOAT, [], [1.0]))
    proto.graph.node.append(helper.make_node("Clip", ["unclipped", "", "one"], [output.name]))
    return proto


@pytest.mark.filterwarnings("error::RuntimeWarning")
def test_equal_infinities_are_no_difference(exported):
    q_model, path = exported
    assert qdq.verify_onnx(path, q_model, DATA).passed
    assert qdq.verify_onnx(path, data=DATA).passed


def test_a_number_in_place_of_an_infinity_fails(exported, clipped):
    parity = Parity(clipped, exported[0], {"x": DATA})
    for optimized in (False, True):
        (found,) = parity.end_to_end(optimized=optimized)
        assert not found.passed
        assert np.isfinite(found.allowed)
    (forced,) = parity.forced_outputs().values()
    assert forced == np.inf


def test_infinities_allow_nothing_without_a_model(exported):
    compared = OptimizationParity(onnx.load(exported[1]), {"x": DATA})
    assert all(np.isfinite(allowed) for allowed in compared._allowed.values())


def test_only_numbers_have_a_distance():
    one = np.array([1.0, np.inf, -np.inf, np.nan, np.inf, np.inf, 2.0], np.float32)
    other = np.array([3.0, np.inf, -np.inf, np.nan, -np.inf, 0.0, np.nan], np.float32)
    assert apart(one, other).tolist() == [2.0, 0.0, 0.0, 0.0, np.inf, np.inf, np.inf]
    assert mean_of_numbers(one, other) == 2.0 / 7
    assert mean_of_numbers(one) == 3.0 / 7
    assert mean_of_numbers(np.zeros((0, 2))) == 0.0
