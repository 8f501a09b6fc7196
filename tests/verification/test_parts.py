"""A file cut behind its pairs: every part runs on the integers that it is given."""

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from qdq_workbench.onnx_graph.sessions import RunError, make_session
from qdq_workbench.verification.parts import cut_behind, run_parts

CODES = np.array([[4, -6]], np.int8)


@pytest.fixture
def file():
    """`y = relu(pair(x))`, with steps of 0.5, and the integers as a further output."""
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "scale", "zero"], ["codes"]),
        helper.make_node("DequantizeLinear", ["codes", "scale", "zero"], ["dequantized"]),
        helper.make_node("Relu", ["dequantized"], ["y"]),
    ]
    constants = [
        numpy_helper.from_array(np.array(value, kind), name)
        for name, value, kind in (("scale", 0.5, np.float32), ("zero", 0, np.int8))
    ]
    ends = [
        helper.make_tensor_value_info(name, kind, ["n", 2])
        for name, kind in (("x", TensorProto.FLOAT), ("y", TensorProto.FLOAT), ("codes", TensorProto.INT8))
    ]
    model = helper.make_model(
        helper.make_graph(nodes, "g", ends[:1], ends[1:], constants), opset_imports=[helper.make_opsetid("", 17)]
    )
    model.ir_version = 9
    return model


def test_a_part_reads_the_integers_it_is_given(file):
    before = file.SerializeToString()
    session = make_session(cut_behind(file, {"codes": CODES}), optimized=False)
    x = np.array([[1.0, 3.0]], np.float32)
    found = run_parts(session, ["codes", "y"], {"x": x}, {"codes": CODES})
    np.testing.assert_array_equal(found["codes"], [[2, 6]])  # of the sample
    np.testing.assert_array_equal(found["y"], [[2.0, 0.0]])  # of the integers given
    assert file.SerializeToString() == before


def test_what_the_session_does_not_take_is_left_out(file):
    session = make_session(file, optimized=False)
    found = run_parts(session, ["y"], {"x": np.array([[1.0, -3.0]], np.float32)}, {"codes": CODES})
    assert list(found) == ["y"]
    np.testing.assert_array_equal(found["y"], [[1.0, 0.0]])


def test_a_wrong_shape_is_a_named_error(file):
    session = make_session(cut_behind(file, {"codes": CODES}), optimized=False)
    with pytest.raises(RunError, match="fails to run it"):
        run_parts(session, ["y"], {"x": np.zeros((1, 2), np.float32)}, {"codes": CODES[:, :1]})
