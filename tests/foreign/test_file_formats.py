"""Files with nodes that lack what their operator needs are refused by name, wherever the node stands."""

import onnx
import pytest
from onnx import TensorProto, helper

import qdq_workbench as qdq
from qdq_workbench.errors import FileAccessError
from qdq_workbench.foreign.file_formats import check_nodes

ENDS = [helper.make_tensor_value_info(name, TensorProto.FLOAT, (2,)) for name in "xy"]


def model(*nodes, functions=()):
    graph = helper.make_graph(nodes, "damaged", ENDS[:1], ENDS[1:])
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("own.domain", 1)]
    return helper.make_model(graph, opset_imports=opsets, functions=functions)


@pytest.mark.parametrize(
    ("op", "inputs", "outputs", "said"),
    [
        (
            "DequantizeLinear",
            1,
            1,
            "'y0' has 1 inputs and 1 outputs, and DequantizeLinear needs 2 inputs and an output at least",
        ),
        ("QuantizeLinear", 0, 1, "QuantizeLinear needs 2 inputs"),
        ("Conv", 1, 1, "Conv needs 2 inputs"),
        ("Identity", 0, 1, "Identity needs 1 inputs"),
        ("Relu", 1, 0, "'Relu' has 1 inputs and 0 outputs"),
    ],
)
@pytest.mark.parametrize("read", [qdq.lint_onnx, qdq.import_qdq])
def test_a_node_without_its_inputs_is_named(read, op, inputs, outputs, said, tmp_path):
    node = helper.make_node(op, ["x"] * inputs, [f"y{index}" for index in range(outputs)])
    onnx.save(model(node), tmp_path / "damaged.onnx")
    with pytest.raises(
        FileAccessError, match=rf"The file is damaged: the node .*{said}.*Received: path='.*damaged.onnx'"
    ):
        read(tmp_path / "damaged.onnx")


def test_nodes_of_branches_and_functions_are_looked_at_too():
    faulty = helper.make_node("Add", ["x"], ["t"], "add")
    branch = helper.make_graph([faulty], "branch", [], [helper.make_tensor_value_info("t", TensorProto.FLOAT, None)])
    choice = helper.make_node("If", ["flag"], ["y"], then_branch=branch, else_branch=branch)
    own = helper.make_function("own.domain", "Own", ["x"], ["t"], [faulty], [helper.make_opsetid("", 17)])
    for made in (model(choice), model(helper.make_node("Own", ["x"], ["y"], domain="own.domain"), functions=[own])):
        with pytest.raises(FileAccessError, match="the node 'add' has 1 inputs"):
            check_nodes(made, "model.onnx")


@pytest.mark.parametrize(
    "node",
    [
        helper.make_node("Add", ["x"], ["y"], domain="own.domain"),
        helper.make_node("Unheard", [], ["y"]),
        helper.make_node("Constant", [], ["y"], value_float=1.0),
        helper.make_node("Clip", ["x"], ["y"]),
        helper.make_node("DynamicQuantizeLinear", ["x"], ["y"]),
        helper.make_node("Add", ["x", "x"], ["y"]),
    ],
    ids=lambda node: node.op_type + node.domain,
)
def test_nodes_that_have_all_or_are_unknown_are_accepted(node):
    check_nodes(model(node), "model.onnx")


def test_pairs_of_other_domains_are_read_as_pairs_and_need_the_same():
    node = helper.make_node("QuantizeLinear", ["x"], ["y"], domain="com.microsoft")
    with pytest.raises(FileAccessError, match="QuantizeLinear needs 2"):
        check_nodes(model(node), "model.onnx")
