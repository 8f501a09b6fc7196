"""The final names, sizes and constants of a file, and what is refused before it is written."""

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from pass_graphs import computed, model_of

from qdq_workbench.errors import ExportError
from qdq_workbench.export import finish as module
from qdq_workbench.export.finish import assemble, final_names, finish, settle_names
from qdq_workbench.export.keras_side.float_graph import FloatGraph
from qdq_workbench.export.keras_side.trace import CallEnds, EndNames
from qdq_workbench.onnx_graph.graph import Graph

ENDS = EndNames(
    inputs={"image": "qdq_input_0", "meta": "qdq_input_1"},
    outputs={"scores": "qdq_output_0"},
    sources={"relu": "qdq_source_0"},
    placeholders={"relu": "qdq_placeholder_0"},
    weights={"conv/kernel": "qdq_weight_0"},
    calls=(CallEnds(("qdq_argument_0_0",), ("qdq_result_0_0",)),),
)
SCOPES = {"qdq_op_0": "conv", "qdq_op_1": "block/norm (1)"}
IN, OUT = "qdq_input_0", "qdq_output_0"


def float_graph(converted=(), ends=ENDS):
    """A converted model whose nodes have given names, each writing the tensor `<name>:0`."""
    nodes = [helper.make_node("Relu", ["x"], [f"{name}:0"], name) for name in converted]
    constants = [numpy_helper.from_array(np.zeros(1, np.float32), "const_fold_opt__7")]
    return FloatGraph(helper.make_model(helper.make_graph(nodes, "converted", [], [], constants)), ends, SCOPES)


def simple(inputs, outputs):
    return EndNames(inputs, outputs, {}, {}, {})


# Names


CONVERTED = ["qdq_op_0/conv/Conv2D__12", "qdq_op_1/block/norm (1)_2/mul", "Relu__3", "PartitionedCall/qdq_op_0/add"]


@pytest.mark.parametrize(
    ("name", "final"),
    [
        ("qdq_op_0/conv/Conv2D__12", "conv/Conv2D"),
        ("qdq_op_0/conv/Conv2D__12:0", "conv/Conv2D"),
        ("qdq_op_0/conv_3/Conv2D", "conv/Conv2D"),
        ("qdq_op_0/convolution", "conv/convolution"),  # begins like the layer and is another word
        ("qdq_op_0/conv", "conv"),
        ("qdq_op_0/", "conv"),
        ("qdq_op_1/block/norm (1)_2/mul", "block/norm (1)/mul"),
        ("PartitionedCall/qdq_op_0/add", "conv/add"),
        ("qdq_op_0/a__4/b__5:0/channels_first", "conv/a/b"),
        ("qdq_op_9/add", "qdq_op_9/add"),  # a scope that was not traced
        ("qdq_input_0", "image"),
        ("qdq_input_0:0", "image"),
        ("qdq_input_1/Cast", "meta/Cast"),
        ("qdq_input_2", "qdq_input_2"),  # no end of this model
        ("qdq_output_0", "scores"),
        ("qdq_source_0", "relu/source"),
        ("qdq_placeholder_0", "relu/dequantized"),
        ("qdq_weight_0/Transpose", "conv/kernel/Transpose"),
        ("qdq_argument_0_0", "argument_0_0"),
        ("qdq_result_0_0/x", "result_0_0/x"),
        ("Relu__3", "Relu"),
        ("Relu__3:0", "Relu"),
        ("Relu__3/bias", "Relu/bias"),
        ("const_fold_opt__7", "const_fold_opt"),
        ("relu/QuantizeLinear__2", "relu/QuantizeLinear__2"),  # a layer of the user may be called so
        ("layer__2/QuantizeLinear", "layer__2/QuantizeLinear"),
        ("relu/quantized:0", "relu/quantized"),
    ],
)
def test_names_depend_on_the_model_alone(name, final):
    assert final_names(float_graph(CONVERTED))(name) == final


def test_nodes_are_renamed_before_the_passes_that_ask_for_names():
    names = float_graph(["qdq_op_0/a__1", "qdq_op_0/a__2"])
    rows = [("Relu", IN, "qdq_op_0/a__1"), ("Relu", "qdq_op_0/a__1", "qdq_op_0/a__2")]
    graph = Graph(model_of(rows, {IN: (2,)}, "qdq_op_0/a__2"))
    settle_names(graph, names)
    assert [node.name for node in graph.sorted_nodes()] == ["conv/a", "conv/a__2"]
    assert graph.fresh("conv/a") == "conv/a"  # tensors keep their names until the end


# Assembling


def test_ends_have_the_names_of_the_model_in_its_order_whatever_else_is_called_so():
    ends = simple({"b": "qdq_input_1", "a": "qdq_input_0"}, {"z": "qdq_output_1", "y": "qdq_output_0"})
    rows = [("Add", "qdq_input_0,qdq_input_1", "y"), ("Relu", "y", "qdq_output_0"), ("Neg", "y", "qdq_output_1")]
    graph = Graph(model_of(rows, {"qdq_input_0": (2,), "qdq_input_1": (2,)}, "qdq_output_0,qdq_output_1"))
    model = finish(graph, float_graph(ends=ends), dynamic_batch=True)
    assert [value.name for value in model.graph.input] == ["b", "a"]
    assert [value.name for value in model.graph.output] == ["z", "y"]
    (inner,) = [node.output[0] for node in model.graph.node if node.op_type == "Add"]
    assert inner == "y__2"


def test_two_names_that_become_one_get_numbers_and_what_is_left_out_stays_so():
    rows = [
        ("Relu", IN, "qdq_op_0/a__1"),
        ("Neg", "qdq_op_0/a__1", "qdq_op_0/a__2"),
        ("Clip", "qdq_op_0/a__2,,high", OUT),
    ]
    graph = Graph(model_of(rows, {IN: (2,)}, OUT, {"high": np.float32(1), "unused": np.zeros(3, np.float32)}))
    names = float_graph(["qdq_op_0/a__1", "qdq_op_0/a__2"], simple({"x": IN}, {"y": OUT}))
    model = finish(graph, names, dynamic_batch=False)
    found = [(node.name, list(node.input), list(node.output)) for node in model.graph.node]
    assert found[:2] == [("conv/a", ["x"], ["conv/a"]), ("conv/a__2", ["conv/a"], ["conv/a__2"])]
    assert found[2][1:] == (["conv/a__2", "", "high"], ["y"])
    assert [tensor.name for tensor in model.graph.initializer] == ["high"]


def branching(branch, names):
    """A file with an If whose branches are these, and the first of the two in it."""
    rows = [("Relu", IN, "qdq_op_0/a__1"), ("Cast", "flag", "c", {"to": TensorProto.BOOL})]
    graph = Graph(model_of(rows, {IN: (2,)}, "qdq_op_0/a__1", {"flag": np.float32(1)}))
    graph.add("If", ["c"], "if", output=OUT, then_branch=branch, else_branch=branch)
    graph.outputs = {OUT: helper.make_tensor_value_info(OUT, TensorProto.FLOAT, (2,))}
    model = finish(graph, names, dynamic_batch=False)
    (node,) = [node for node in model.graph.node if node.op_type == "If"]
    return model, helper.get_attribute_value(node.attribute[0])


def test_branches_read_the_tensors_around_them_by_their_new_names():
    ends = [helper.make_tensor_value_info("t", TensorProto.FLOAT, (2,))]
    branch = helper.make_graph([helper.make_node("Add", [IN, "qdq_op_0/a__1"], ["t"])], "branch", [], ends)
    model, body = branching(branch, float_graph(["qdq_op_0/a__1"], simple({"x": IN}, {"y": OUT})))
    assert list(body.node[0].input) == ["x", "conv/a"]
    assert [list(other.output) for other in model.graph.node if other.op_type == "Relu"] == [["conv/a"]]
    assert branch.node[0].input[0] == IN  # that of the graph is not changed
    assert len(computed(model)) == 1


def test_what_is_in_a_branch_has_a_stable_name_that_nothing_around_it_has():
    inner = "function_1_qdq_op_0/a__9"
    nodes = [
        helper.make_node("Relu", [IN], [f"{inner}:0"], inner),
        helper.make_node("Add", [f"{inner}:0", "qdq_op_0/a__1"], ["qdq_op_0_t:0"], "qdq_op_0_t"),
    ]
    ends = [helper.make_tensor_value_info("qdq_op_0_t:0", TensorProto.FLOAT, (2,))]
    branch = helper.make_graph(nodes, "qdq_op_0_true", [], ends)
    model, body = branching(branch, float_graph(["qdq_op_0/a__1"], simple({"x": IN}, {"y": OUT})))
    assert body.name == "conv/true"
    assert [(node.name, *node.input, *node.output) for node in body.node] == [
        ("conv/a__2", "x", "conv/a__2"),
        ("conv/t", "conv/a__2", "conv/a", "conv/t"),
    ]
    assert [value.name for value in body.output] == ["conv/t"]
    assert len(computed(model)) == 1


def sizes(value):
    return [dim.dim_param or dim.dim_value for dim in value.type.tensor_type.shape.dim]


@pytest.mark.parametrize(
    ("shape", "dynamic", "expected"),
    [
        (("n", 3, "m"), True, ["batch", 3, "x_2"]),
        (("n", 3, "m"), False, ["x_0", 3, "x_2"]),
        ((2, "n"), True, [2, "x_1"]),
        ((0, 3), True, [0, 3]),
        ((), True, []),
    ],
)
def test_an_open_first_axis_is_the_batch_and_every_other_one_has_a_name_of_its_own(shape, dynamic, expected):
    graph = Graph(model_of([("Relu", IN, OUT)], {IN: shape}, OUT))
    model = assemble(graph, float_graph(ends=simple({"x": IN}, {"y": OUT})), dynamic_batch=dynamic)
    assert sizes(model.graph.input[0]) == expected


def test_an_unknown_rank_stays_unknown():
    graph = Graph(model_of([("Relu", IN, OUT)], {IN: None}, OUT))
    model = assemble(graph, float_graph(ends=simple({"x": IN}, {"y": OUT})), dynamic_batch=True)
    assert not model.graph.input[0].type.tensor_type.HasField("shape")


def test_other_domains_are_declared():
    model = model_of([("Relu", IN, OUT)], {IN: (2,)}, OUT)
    model.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    made = assemble(Graph(model), float_graph(ends=simple({"x": IN}, {"y": OUT})), dynamic_batch=True)
    assert [(entry.domain, entry.version) for entry in made.opset_import] == [("", 17), ("com.microsoft", 1)]
    assert made.producer_name == "qdq_workbench"


# Constants


def dequantized(name, dtype):
    """A graph that adds a dequantized weight of a name to its input."""
    rows = [("DequantizeLinear", "w,s,z", name), ("Add", f"{IN},{name}", OUT)]
    constants = {"w": np.array([1, 7, 3]).astype(dtype), "s": np.float32(1), "z": np.zeros((), dtype)}
    return Graph(model_of(rows, {IN: (3,)}, OUT, constants, opset=21))


@pytest.mark.parametrize(("dtype", "kind"), [(np.int8, TensorProto.INT4), (np.uint8, TensorProto.UINT4)])
@pytest.mark.parametrize("number", ["", "__2"])
def test_a_weight_of_four_bits_is_packed_with_its_zero_point(number, dtype, kind):
    graph = dequantized(f"conv/kernel/DequantizeLinear{number}", dtype)
    names = float_graph(ends=simple({"x": IN}, {"y": OUT}))
    model = finish(graph, names, dynamic_batch=False, four_bits=["conv/kernel"])
    found = {tensor.name: (tensor.data_type, tensor.raw_data) for tensor in model.graph.initializer}
    assert found["w"] == (kind, bytes([0x71, 0x03]))
    assert found["z"] == (kind, b"\x00")
    assert found["s"][0] == TensorProto.FLOAT


def test_other_weights_are_not_packed():
    names = float_graph(ends=simple({"x": IN}, {"y": OUT}))
    for four_bits in ((), ("conv",), ("other/conv/kernel",)):
        graph = dequantized("conv/kernel/DequantizeLinear", np.int8)
        model = assemble(graph, names, dynamic_batch=False, four_bits=four_bits)
        assert {tensor.data_type for tensor in model.graph.initializer} == {TensorProto.INT8, TensorProto.FLOAT}


@pytest.mark.parametrize(
    "dtype",
    [
        *("bool", "float16", "float32", "float64", "int8", "int16", "int32", "int64", "uint8", "uint16"),
        *("uint32", "uint64"),
        ml_dtypes.bfloat16,
    ],
)
@pytest.mark.parametrize("order", ["C", "F"])
def test_a_constant_of_any_type_is_what_onnx_makes_of_it(dtype, order):
    value = np.asarray(np.arange(6).reshape(2, 3).astype(dtype), order=order)
    made = module._plain_constant(value, "c")
    assert made == numpy_helper.from_array(value, "c")
    assert made.dims == [2, 3]


@pytest.mark.parametrize(("limit", "refused"), [(12, False), (11, True)])
def test_a_constant_beyond_one_message_is_refused_by_its_final_name(limit, refused, monkeypatch):
    monkeypatch.setattr(module, "TENSOR_LIMIT", limit)
    ends = EndNames({"x": IN}, {"y": OUT}, {}, {}, {"conv/kernel": "qdq_weight_0"})
    constants = {"qdq_weight_0": np.float32([1, 2, 3])}
    graph = Graph(model_of([("Add", f"{IN},qdq_weight_0", OUT)], {IN: (3,)}, OUT, constants))
    if not refused:
        assert len(assemble(graph, float_graph(ends=ends), dynamic_batch=True).graph.node) == 1
        return
    with pytest.raises(ExportError, match=r"'conv/kernel' has 12 bytes, and ONNX holds 11.*shape \(3,\), float32"):
        assemble(graph, float_graph(ends=ends), dynamic_batch=True)


# The check


def faulty():
    """A node that the checker refuses."""
    graph = Graph(model_of([("Relu", IN, OUT)], {IN: (2,)}, OUT))
    graph.producer(OUT).set("no_attribute", 1)
    return graph


def test_a_model_that_the_checker_refuses_is_an_error_of_the_exporter(monkeypatch):
    names = float_graph(ends=simple({"x": IN}, {"y": OUT}))
    with pytest.raises(ExportError, match=r"did not pass onnx.checker.*please report it.*no_attribute"):
        finish(faulty(), names, dynamic_batch=True)
    monkeypatch.setattr(module, "SINGLE_FILE_LIMIT", -1)
    assert isinstance(finish(faulty(), names, dynamic_batch=True), onnx.ModelProto)  # checked from its file
