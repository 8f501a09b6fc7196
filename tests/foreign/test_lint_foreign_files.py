"""The linter on what other tools write: branches, the QOperator format, blocks, nodes without names, functions."""

import numpy as np
import onnx
import pytest
from foreign_files import ACTIVATION, KINDS, PAIR, PRODUCT, SCALES, Batches, array, branches, make, values, weight
from onnx import TensorProto, helper
from onnxruntime.quantization import QuantFormat, quantize_dynamic, quantize_static
from small_models import residual_net, samples

import qdq_workbench as qdq


def lint(path, *arguments, **options):
    onnx.save(make(*arguments, **options), path / "model.onnx")
    return qdq.lint_onnx(path / "model.onnx")


def found(report):
    return [(item.rule, item.node) for item in report.findings]


@pytest.mark.parametrize(("scale", "expected"), [(0.1, []), (0.0, [("QDQ-SCALE", "q"), ("QDQ-SCALE", "d")] * 2)])
def test_branches_are_read_and_see_the_constants_around_them(scale, expected, tmp_path):
    report = lint(tmp_path, *branches(scale))
    assert report.pairs == 2
    assert found(report) == expected


def test_pairs_inside_a_branch_inside_a_branch_are_read(tmp_path):
    nodes, constants = branches(0.0)
    part = helper.make_graph(nodes, "outer", [], [values("y")])
    part.node[0].output[0] = part.output[0].name = "inner"
    choice = helper.make_node("If", ["c"], ["y"], then_branch=part, else_branch=part)
    assert lint(tmp_path, [choice], constants).counts == {"QDQ-SCALE": 8}


def test_a_pair_may_reach_over_the_edge_of_a_branch(tmp_path):
    def branch(node):
        return helper.make_graph([node], "branch", [], [values(node.output[0])])

    inside = helper.make_node("DequantizeLinear", ["xq", "s", "z"], ["d"])
    given = helper.make_node("Identity", ["xq"], ["i"])
    options = {"then_branch": branch(inside), "else_branch": branch(inside)}
    read_inside = [PAIR[0], helper.make_node("If", ["c"], ["y"], **options)]
    options = {"then_branch": branch(given), "else_branch": branch(given)}
    read_behind = [
        PAIR[0],
        helper.make_node("If", ["c"], ["b"], **options),
        helper.make_node("DequantizeLinear", ["b", "s", "z"], ["y"]),
    ]
    constants = [*ACTIVATION, array(1, "c", "bool")]
    assert found(lint(tmp_path, read_inside, constants)) == []
    assert found(lint(tmp_path, read_behind, constants)) == []
    other = [*constants, array(0.3, "t")]
    inside.input[1] = "t"
    options = {"then_branch": branch(inside), "else_branch": branch(inside)}
    report = lint(tmp_path, [PAIR[0], helper.make_node("If", ["c"], ["y"], **options)], other)
    assert found(report) == [("QDQ-MISMATCH", "d")] * 2


def test_a_body_may_be_given_integers(tmp_path):
    inside = [
        helper.make_node("DequantizeLinear", ["carried", "s", "z"], ["d"]),
        helper.make_node("Identity", ["going"], ["goes"]),
        helper.make_node("Identity", ["carried"], ["again"]),
    ]
    body = helper.make_graph(
        inside,
        "body",
        [values("i", TensorProto.INT64, ()), values("going", TensorProto.BOOL, ()), values("carried", KINDS["uint8"])],
        [values("goes", TensorProto.BOOL, ()), values("again", KINDS["uint8"]), values("d")],
    )
    nodes = [PAIR[0], helper.make_node("Loop", ["", "c", "xq"], ["last", "y"], body=body)]
    report = lint(tmp_path, nodes, [*ACTIVATION, array(1, "c", "bool")])
    assert found(report) == []


def test_functions_are_read_where_they_are_called(tmp_path):
    pair = helper.make_function("local", "Pair", ["x", "s", "z"], ["xd"], list(PAIR), [helper.make_opsetid("", 21)])
    nodes = [helper.make_node("Pair", ["x", "s", "z"], ["y"], domain="local")]
    report = lint(tmp_path, nodes, [array(0.0, "s"), ACTIVATION[1]], functions=[pair])
    assert (report.pairs, report.counts) == (1, {"QDQ-SCALE": 2})


def test_branches_of_functions_are_read_too(tmp_path):
    (choice,), constants = branches(0.0)
    inputs = ["x", "s", "z", "c"]
    chosen = helper.make_function("local", "Choice", inputs, ["y"], [choice], [helper.make_opsetid("", 21)])
    report = lint(tmp_path, [helper.make_node("Choice", inputs, ["y"], domain="local")], constants, functions=[chosen])
    assert (report.pairs, report.counts) == (2, {"QDQ-SCALE": 4})


def test_files_in_the_qoperator_format_have_no_findings_and_a_note(tmp_path):
    model = residual_net()
    qdq.export_float_onnx(model, tmp_path / "float.onnx")
    batches = Batches(samples(model))
    quantize_static(tmp_path / "float.onnx", tmp_path / "q.onnx", batches, quant_format=QuantFormat.QOperator)
    report = qdq.lint_onnx(tmp_path / "q.onnx")
    assert {node.op_type for node in onnx.load(tmp_path / "q.onnx").graph.node} >= {"QLinearConv", "QLinearAdd"}
    assert found(report) == []
    (note,) = report.notes
    assert "QLinearAdd, QLinearConv" in note
    assert f"note: {note}" in report.summary()
    assert report.to_dict()["notes"] == [note]


def test_dynamically_quantized_files_have_no_findings(tmp_path):
    qdq.export_float_onnx(residual_net(), tmp_path / "float.onnx")
    quantize_dynamic(tmp_path / "float.onnx", tmp_path / "q.onnx")
    assert found(qdq.lint_onnx(tmp_path / "q.onnx")) == []


@pytest.mark.parametrize("op", ["ConvInteger", "MatMulInteger", "QGemm", "QLinearConcat", "DynamicQuantizeLinear"])
def test_a_dequantizer_behind_an_operation_on_integers_is_right(op, tmp_path):
    nodes = [helper.make_node(op, ["x", "w"], ["i"]), helper.make_node("DequantizeLinear", ["i", "s", "z"], ["y"])]
    assert found(lint(tmp_path, nodes, ACTIVATION)) == []


def test_a_dequantizer_with_the_scales_of_dynamic_quantization_is_right(tmp_path):
    nodes = [
        helper.make_node("DynamicQuantizeLinear", ["x"], ["xq", "xs", "xz"]),
        helper.make_node("DequantizeLinear", ["xq", "xs", "xz"], ["y"]),
    ]
    assert found(lint(tmp_path, nodes, [])) == []


@pytest.mark.parametrize(
    ("attributes", "shape", "says"),
    [
        ({"axis": 0, "block_size": 2}, (2, 4), None),
        ({"axis": 1, "block_size": 3}, (4, 2), None),
        ({"axis": -1, "block_size": 2}, (4, 2), None),
        ({"axis": 1, "block_size": 2}, (2, 4), "do not fit blocks of 2 on axis 1, (4, 2)"),
        ({"axis": 2, "block_size": 2}, (2, 4), "its axis 2 does not exist"),
        ({"axis": 0}, (2, 4), "need a block_size"),
        ({"axis": 1}, (4,), None),
        ({"axis": -1}, (4,), None),
        ({"axis": 1}, (3,), "3 scales do not fit axis 1 of shape (4, 4)"),
        ({"axis": 9}, (4,), "its axis 9 does not exist: the constant has shape (4, 4)"),
        ({"axis": -3}, (4,), "its axis -3 does not exist"),
        ({"axis": 0}, (4,), "along axis 0; the output channels of MatMul are axis 1"),
    ],
)
def test_scales_must_fit_their_axis_or_blocks(attributes, shape, says, tmp_path):
    constants = [*ACTIVATION, array(np.full(shape, 0.1), "v"), array(np.zeros(shape), "o", "int8")]
    report = lint(tmp_path, [*PAIR, weight(**attributes), PRODUCT], constants)
    assert found(report) == ([] if says is None else [("QDQ-AXIS", "wd")])
    assert says is None or says in report.findings[0].message


@pytest.mark.parametrize("perm", [{}, {"perm": [1, 0]}])
@pytest.mark.parametrize(("axis", "expected"), [(0, []), (1, [("QDQ-AXIS", "t")])])
def test_the_axis_is_followed_through_a_transpose(perm, axis, expected, tmp_path):
    nodes = [*PAIR, weight("t", axis=axis), helper.make_node("Transpose", ["t"], ["wd"], **perm), PRODUCT]
    report = lint(tmp_path, nodes, [*ACTIVATION, *SCALES])
    assert found(report) == expected
    assert not expected or "axis 0 behind the Transpose" in report.findings[0].message


@pytest.mark.parametrize(("axis", "expected"), [(1, []), (0, [("QDQ-AXIS", "wd")])])
def test_a_float_weight_with_a_scale_per_channel_is_no_activation(axis, expected, tmp_path):
    nodes = [
        *PAIR,
        helper.make_node("QuantizeLinear", ["k", "v", "o"], ["kq"], axis=axis),
        helper.make_node("DequantizeLinear", ["kq", "v", "o"], ["wd"], axis=axis),
        PRODUCT,
    ]
    report = lint(tmp_path, nodes, [*ACTIVATION, *SCALES, array(np.ones((4, 4)), "k")])
    assert found(report) == [*expected, ("QDQ-FLOAT-WEIGHT", "kq")]


@pytest.mark.parametrize(
    "given",
    [
        helper.make_node("Constant", [], ["s"], value_float=0.1),
        helper.make_node("Constant", [], ["s"], value_floats=[0.1]),
        helper.make_node("Constant", [], ["s"], value=array(0.1, "s")),
        helper.make_node("Identity", ["kept"], ["s"]),
    ],
    ids=["value_float", "value_floats", "value", "Identity"],
)
def test_constants_are_constants_however_they_are_written(given, tmp_path):
    nodes = [given, *PAIR, weight(axis=1), PRODUCT]
    report = lint(tmp_path, nodes, [ACTIVATION[1], *SCALES, array(0.1, "kept")])
    assert found(report) == []
    (pair,) = qdq.import_qdq(tmp_path / "model.onnx").tensors[0].quantizers
    assert np.isclose(pair.scale, 0.1)


def test_a_scale_from_integers_of_a_constant_node_is_judged(tmp_path):
    nodes = [helper.make_node("Constant", [], ["s"], value_ints=[0]), *PAIR, weight(axis=1), PRODUCT]
    report = lint(tmp_path, nodes, [ACTIVATION[1], *SCALES])
    assert found(report) == [("QDQ-SCALE", "xq"), ("QDQ-SCALE", "xd")]


def test_nodes_without_names_are_called_by_what_they_write(tmp_path):
    nodes = [PAIR[0], helper.make_node("DequantizeLinear", ["xq", "t", "z"], ["xd"]), weight(axis=1), PRODUCT]
    report = lint(tmp_path, nodes, [*ACTIVATION, *SCALES, array(0.2, "t")])
    assert found(report) == [("QDQ-MISMATCH", "xd")]
    assert "not that of 'xq'" in report.findings[0].message


@pytest.mark.parametrize(("given", "kind"), [({}, "uint8"), ({"output_dtype": TensorProto.INT8}, "int8")])
def test_a_zero_point_may_be_left_out_on_one_side(given, kind, tmp_path):
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s"], ["xq"], **given),
        helper.make_node("DequantizeLinear", ["xq", "s", "z"], ["xd"]),
        helper.make_node("QuantizeLinear", ["xd", "t", "z"], ["hq"]),
        helper.make_node("DequantizeLinear", ["hq", "t"], ["y"]),
    ]
    assert found(lint(tmp_path, nodes, [array(0.1, "s"), array(0.2, "t"), array(0, "z", kind)])) == []


def test_one_scale_is_one_scale_in_either_shape(tmp_path):
    nodes = [PAIR[0], helper.make_node("DequantizeLinear", ["xq", "t", "z"], ["xd"]), weight(axis=1), PRODUCT]
    assert found(lint(tmp_path, nodes, [*ACTIVATION, *SCALES, array([0.1], "t")])) == []


@pytest.mark.parametrize("kind", ["uint4", "int4", "float8"])
def test_a_cut_in_front_of_any_type_can_be_judged(kind, tmp_path):
    nodes = [
        *PAIR,
        weight(axis=1),
        helper.make_node("DequantizeLinear", ["b", "r"], ["bd"], axis=0),
        helper.make_node("Gemm", ["xd", "wd", "bd"], ["h"]),
        helper.make_node("Conv", ["xd", "wd", "bd"], ["c"]),
        helper.make_node("Clip", ["c", "low", "high"], ["cut"]),
        helper.make_node("QuantizeLinear", ["cut", "s", "n"], ["cq"]),
        helper.make_node("DequantizeLinear", ["cq", "s", "n"], ["y"]),
    ]
    constants = [*ACTIVATION, *SCALES, array([1] * 4, "b", "int32"), array([1.0, 2.0, 3.0], "r"), array(0, "n", kind)]
    report = lint(tmp_path, nodes, [*constants, array(-0.1, "low"), array(0.2, "high")])
    biases = [node for rule, node in found(report) if rule == "QDQ-BIAS"]
    assert biases == (["h", "c"] if kind == "float8" else ["h"])
