"""Sums of absolute terms, computed beside the sums of a file."""

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from qdq_workbench.onnx_graph.sessions import make_session
from qdq_workbench.verification.float_errors import error_of, measured, with_terms
from qdq_workbench.verification.parts import run_parts

X = np.array([[1.0, -2.0, 3.0, -4.0]], np.float32)


def file_of(node, **constants):
    """A file of one node from x to y."""
    tensors = [numpy_helper.from_array(np.asarray(values), name) for name, values in constants.items()]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in "xy"]
    ends[0].type.tensor_type.shape.CopyFrom(
        helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 4]).type.tensor_type.shape
    )
    model = helper.make_model(
        helper.make_graph([node], "g", ends[:1], ends[1:], tensors), opset_imports=[helper.make_opsetid("", 17)]
    )
    model.ir_version = 9
    return model


def terms(model):
    (node,) = model.graph.node
    twin = with_terms(model)
    for name in measured(node):
        if name not in {value.name for value in twin.graph.output}:
            twin.graph.output.append(helper.make_empty_tensor_value_info(name))
    session = make_session(twin, optimized=False)
    values = run_parts(session, [value.name for value in session.get_outputs()], {"x": X}, {})
    return error_of(node)(node, values, node.output[0])


W = np.array([[1.0, -1.0], [1.0, 1.0], [0.0, 2.0], [0.0, 0.0]], np.float32)


@pytest.mark.parametrize(
    ("node", "constants", "expected"),
    [
        (helper.make_node("MatMul", ["x", "w"], ["y"]), {"w": W}, [[3.0, 9.0]]),
        (
            helper.make_node("Gemm", ["x", "w", "b"], ["y"], transB=0),
            {"w": W, "b": np.float32([-10.0, 10.0])},
            [[13.0, 19.0]],
        ),
        (helper.make_node("Sub", ["x", "c"], ["y"]), {"c": np.float32(5.0)}, [[6.0, 7.0, 8.0, 9.0]]),
        (helper.make_node("Sum", ["x", "x", "c"], ["y"]), {"c": np.float32(-1.0)}, [[3.0, 5.0, 7.0, 9.0]]),
        (helper.make_node("ReduceSum", ["x", "axes"], ["y"], keepdims=1), {"axes": np.array([1])}, [[10.0]]),
        (helper.make_node("ReduceMean", ["x"], ["y"], axes=[1], keepdims=0), {}, [2.5]),
        (helper.make_node("Sigmoid", ["x"], ["y"]), {}, 1.0),
    ],
    ids=lambda value: getattr(value, "op_type", None),
)
def test_the_error_is_relative_to_the_sum_of_the_absolute_terms(node, constants, expected):
    model = file_of(node, **constants)
    before = model.SerializeToString()
    np.testing.assert_allclose(terms(model), expected)
    assert model.SerializeToString() == before


@pytest.mark.parametrize("op", ["Relu", "Exp", "Mul", "Concat", "QuantizeLinear"])
def test_others_have_no_error_that_matters(op):
    assert error_of(helper.make_node(op, ["x"], ["y"])) is None
