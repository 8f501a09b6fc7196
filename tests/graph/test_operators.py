"""The table of operators names operators of ONNX, and agrees with the table of layers about what both know."""

import numpy as np
import onnx
import pytest
from onnxruntime import InferenceSession

from qdq_workbench.graph import operators
from qdq_workbench.graph.file_operators import _ACTIVATIONS
from qdq_workbench.graph.kinds import KINDS
from qdq_workbench.graph.never_negative import KEEPS, MAKES
from qdq_workbench.graph.operators import OPERATORS, keeps_never_negative, makes_never_negative, written_for


def test_every_row_is_an_operator_of_onnx():
    assert set(OPERATORS) - {schema.name for schema in onnx.defs.get_all_schemas()} == set()


def test_no_operator_has_two_rows():
    assert len(OPERATORS) == sum(len(names.split()) for names, _ in operators._ROWS)


def test_what_a_layer_keeps_its_operator_keeps():
    assert [name for name in KEEPS if not keeps_never_negative(KINDS[name].operator)] == []


def test_what_an_activation_makes_its_operator_makes():
    assert [name for name in MAKES if name in _ACTIVATIONS and not makes_never_negative(_ACTIVATIONS[name][-1])] == []


def test_an_operator_is_written_for_one_of_a_layer():
    known = {operator for kind in KINDS.values() for operator in (*(kind.operators or ()), kind.operator)}
    assert {written_for(name) for name, operator in OPERATORS.items() if operator.writes} <= known


def results(name, x):
    """Return what ONNX Runtime gives for an operator of one tensor."""
    value = onnx.helper.make_tensor_value_info
    node = onnx.helper.make_node(name, ["x"], ["y"], **({"axis": -1} if name.endswith("Softmax") else {}))
    float32 = onnx.TensorProto.FLOAT
    graph = onnx.helper.make_graph([node], "g", [value("x", float32, x.shape)], [value("y", float32, None)])
    opset = max(onnx.defs.get_schema(name, 20).since_version, 20)
    proto = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", opset)], ir_version=9)
    return InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"]).run(None, {"x": x})[0]


BOUNDED = operators.operators_where(lambda operator: operator.bounded and operator.role != "normalization")


@pytest.mark.parametrize("name", sorted(BOUNDED))
def test_bounded_results_stay_bounded(name):
    x = np.float32([[-3e38, -70000, -1, 0, 1, 70000, 3e38]])
    assert np.abs(results(name, x)).max() <= 1


@pytest.mark.parametrize("name", ["Softplus", "Gelu", "LogSoftmax", "Relu", "Elu", "Abs"])
def test_results_of_others_grow_with_their_inputs(name):
    assert not OPERATORS[name].bounded
    assert np.abs(results(name, np.float32([[-70000, 0, 70000]]))).max() > 1000
