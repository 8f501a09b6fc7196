"""The index of Q/DQ nodes: constants in every form, origins, parameters, and the graphs inside of a graph."""

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper
from qdq_files import FileMaker

from qdq_workbench.onnx_graph.qdq_graph import (
    QDQGraph,
    attribute,
    computes_on_integers,
    has_negative_scales,
    integer_limits,
    name_of,
    subgraphs,
    type_name,
)


def index(maker, *outputs):
    return QDQGraph(maker.model(*outputs))


# Constants


@pytest.mark.parametrize(
    ("given", "value", "dtype"),
    [
        ({"value_float": 2.5}, 2.5, np.float32),
        ({"value_floats": [1.0, 2.0]}, [1.0, 2.0], np.float32),
        ({"value_int": 3}, 3, np.int64),
        ({"value_ints": [3, 4]}, [3, 4], np.int64),
        ({"value": numpy_helper.from_array(np.array([5], np.uint8))}, [5], np.uint8),
    ],
)
def test_a_constant_node_in_any_form_and_an_identity_of_it_are_constants(given, value, dtype):
    f = FileMaker()
    f.node("Constant", [], "c", **given)
    graph = index(f, f.node("Identity", [f.node("Identity", ["c"], "same")], "again"))
    for name in ("c", "same", "again"):
        assert graph.is_constant(name)
        assert graph.constant(name).tolist() == value
        assert graph.constant(name).dtype == dtype


def test_texts_and_what_is_computed_are_no_constants():
    f = FileMaker()
    f.node("Constant", [], "text", value_string="t")
    graph = index(f, f.node("Identity", [f.node("Relu", ["x"], "relu")], "same"))
    assert not any(graph.is_constant(name) for name in ("text", "x", "relu", "same", "nowhere"))
    assert graph.constant("relu") is None


# Tensors and who reads them


def test_a_node_that_reads_a_tensor_twice_is_one_reader():
    f = FileMaker()
    f.constant("w", np.ones(2))
    graph = index(f, f.node("Add", ["x", "x"], "y"))
    assert [node.name for node in graph.readers("x")] == ["y"]
    assert (graph.readers("y"), graph.readers("nowhere")) == ([], [])
    assert (graph.producer("x"), graph.producer("w"), graph.producer("nowhere")) == (None, None, None)
    assert graph.producer("y").op_type == "Add"


def test_constants_that_old_files_list_as_inputs_are_none():
    f = FileMaker()
    f.constant("w", np.ones((1, 2, 4, 4), np.float32))
    f.inputs.append(helper.make_tensor_value_info("w", TensorProto.FLOAT, (1, 2, 4, 4)))
    graph = index(f, f.node("Add", ["x", "w"], "y"))
    assert (graph.inputs, graph.outputs, graph.model_inputs) == (["x"], ["y"], ["x"])


# Origins


def test_the_origin_is_followed_through_movements_up_to_a_constant():
    f = FileMaker()
    f.constant("shape", np.array([2, 16]))
    f.node("Reshape", [f.node("Transpose", ["x"], "turned"), "shape"], "moved")
    f.node("Identity", [f.constant("w", np.ones(2))], "same")
    graph = index(f, f.node("Relu", ["moved"], "y"))
    assert graph.origin("moved") == "x"
    assert graph.origin("moved", frozenset({"Reshape"})) == "turned"
    assert graph.origin("y") == "y"
    assert graph.origin("same") == "same"  # a constant itself


def test_a_dequantizer_is_found_behind_movements_and_not_behind_an_operation():
    f = FileMaker()
    f.node("Transpose", [f.pair("x", "in")], "turned")
    graph = index(f, f.node("Relu", ["turned"], "y"))
    assert graph.dequantize_of("turned").name == "in_dq"
    assert graph.dequantize_of("in_dq").name == "in_dq"
    assert graph.dequantize_of("y") is None
    assert graph.dequantize_of("x") is None
    assert [graph.is_dequantized(name) for name in ("in_dq", "turned", "in_q", "x")] == [True, False, False, False]


def test_what_a_dequantizer_reads_is_integers_or_the_floats_of_a_quantizer_before_it():
    f = FileMaker()
    f.constant("floats", np.full(3, 1.5, np.float32))
    f.constant("codes", np.full(3, 7, np.int8))
    f.pair("floats", "w", dtype=np.int8)
    f.dequantize("codes", "direct", dtype=np.int8)
    graph = index(f, f.pair("x", "in"))
    stored = {node.name: graph.stored(node) for node in graph.nodes if node.op_type == "DequantizeLinear"}
    assert stored["w_dq"].tolist() == [1.5, 1.5, 1.5]
    assert stored["direct"].tolist() == [7, 7, 7]
    assert stored["in_dq"] is None


# Parameters


def bare(f, name, tensor, op="DequantizeLinear", **attributes):
    """A Q or DQ node without a zero point."""
    return f.node(op, [tensor, f.constant(f"{name}_s", np.float32([0.5, 0.25]))], name, **attributes)


def parameters(f, name):
    graph = index(f, name)
    return graph.parameters(graph.producer(name))


def test_a_zero_point_that_is_left_out_is_zero_in_the_type_of_the_integers():
    f = FileMaker()
    scale, zero = parameters(f, bare(f, "dq", f.constant("codes", np.ones((2, 2), np.int8))))
    assert (scale.tolist(), zero.tolist(), zero.dtype) == ([0.5, 0.25], [0, 0], np.int8)


@pytest.mark.parametrize(("given", "dtype"), [({}, np.uint8), ({"output_dtype": TensorProto.INT16}, np.int16)])
def test_a_quantizer_without_a_zero_point_writes_uint8_unless_it_says_another_type(given, dtype):
    f = FileMaker()
    assert parameters(f, bare(f, "q", "x", "QuantizeLinear", **given))[1].dtype == dtype
    f = FileMaker()
    f.node("Transpose", [bare(f, "q", "x", "QuantizeLinear", **given)], "moved")
    assert parameters(f, bare(f, "dq", "moved"))[1].dtype == dtype


def test_integers_of_an_unknown_source_are_uint8():
    f = FileMaker()
    assert parameters(f, bare(f, "dq", "x"))[1].dtype == np.uint8
    f = FileMaker()
    f.node("QuantizeLinear", ["x", f.node("Abs", ["x"], "scale")], "q")
    assert parameters(f, bare(f, "dq", "q"))[1].dtype == np.uint8


def test_an_empty_name_is_a_zero_point_that_is_left_out_and_a_computed_one_has_no_value():
    f = FileMaker()
    f.node("QuantizeLinear", ["x", f.constant("s", np.float32(0.5)), ""], "q")
    assert parameters(f, "q")[1].shape == ()
    f.node("QuantizeLinear", ["x", "s", f.node("Abs", ["x"], "computed")], "other")
    assert parameters(f, "other") is None
    f.node("QuantizeLinear", ["x", "computed"], "third")
    assert parameters(f, "third") is None


def test_negative_scales_are_those_of_a_constant_around_zero():
    def found(scale, zero, tensor="codes"):
        f = FileMaker()
        f.constant("codes", np.ones(2, np.int8))
        graph = index(f, f.dequantize(tensor, "dq", scale=scale, zero=zero, dtype=np.int8))
        return has_negative_scales(graph, graph.producer("dq"))

    assert found([0.1, -0.1], [0, 0])
    assert not found([0.1, 0.1], [0, 0])
    assert not found([0.1, -0.1], [0, 1])
    assert not found([0.1, -0.1], [0, 0], tensor="x")
    f = FileMaker()
    graph = index(f, f.quantize(f.constant("w", np.float32([1, 2])), "q", scale=[-0.1, 0.1], zero=[0, 0]))
    assert not has_negative_scales(graph, graph.producer("q"))


# Graphs inside of a graph


def branching():
    """A pair whose halves stand in two graphs, and a branch in the branch."""
    f = FileMaker()
    f.constant("flag", np.array(True))
    f.constant("shadowed", np.float32(1.0))
    f.quantize("x", "q")
    ends = [helper.make_tensor_value_info("d", TensorProto.FLOAT, None)]
    rows = [helper.make_node("Relu", ["shadowed"], ["r"], "relu")]
    deepest = helper.make_graph(rows, "deepest", [], ends)
    nodes = [
        helper.make_node("DequantizeLinear", ["q", "q_s", "q_z"], ["d"], "dq"),
        helper.make_node("If", ["flag"], ["n"], "inner", then_branch=deepest, else_branch=deepest),
    ]
    own = numpy_helper.from_array(np.float32(2.0), "shadowed")
    branch = helper.make_graph(nodes, "branch", [], ends, [own])
    f.nodes.append(helper.make_node("If", ["flag"], ["y"], "if", then_branch=branch, else_branch=branch))
    return index(f, "y")


def test_a_branch_sees_the_tensors_around_it_and_its_reads_are_known_outside():
    graph = branching()
    assert len(list(graph.all_graphs())) == 1 + 2 + 4
    assert [part.is_inner for part in graph.all_graphs()] == [False] + [True] * 6
    branch = graph.inner[0]
    assert branch.producer("q").name == "q"
    assert branch.parameters(branch.producer("d"))[0] == np.float32(0.1)
    assert [node.name for node in graph.readers("q")] == ["dq", "dq"]
    assert branch.model_inputs == branch.inner[0].model_inputs == ["x"]
    assert branch.inputs == []


def test_a_name_of_a_branch_hides_the_same_name_around_it():
    graph = branching()
    branch = graph.inner[0]
    assert (graph.constant("shadowed"), branch.constant("shadowed")) == (1.0, 2.0)
    assert branch.inner[0].constant("shadowed") == 2.0
    assert graph.readers("shadowed") == []
    assert {node.name for node in branch.readers("shadowed")} == {"relu"}


def test_subgraphs_are_single_ones_and_lists_of_them():
    part = helper.make_graph([], "part", [], [])
    assert len(list(subgraphs(helper.make_node("If", ["c"], ["y"], then_branch=part, else_branch=part)))) == 2
    assert len(list(subgraphs(helper.make_node("Own", ["c"], ["y"], cases=[part, part, part], axis=1)))) == 3
    assert list(subgraphs(helper.make_node("Relu", ["x"], ["y"]))) == []


# Names, attributes and types


def test_a_node_without_a_name_is_called_by_its_first_output_or_its_operator():
    assert name_of(helper.make_node("TopK", ["x"], ["v", "i"], name="top")) == "top"
    assert name_of(helper.make_node("TopK", ["x"], ["", "i"])) == "i"
    assert name_of(helper.make_node("Sink", ["x"], [])) == "Sink"


def test_an_integer_attribute_has_a_default():
    node = helper.make_node("DequantizeLinear", ["x", "s"], ["y"], axis=0)
    assert (attribute(node, "axis", 1), attribute(node, "block_size", 7)) == (0, 7)


@pytest.mark.parametrize(
    ("op", "expected"),
    [
        *((op, True) for op in ("QLinearConv", "QGemm", "ConvInteger", "MatMulIntegerToFloat")),
        *((op, True) for op in ("DynamicQuantizeLinear", "QLinearAdd")),
        *((op, False) for op in ("QuantizeLinear", "DequantizeLinear", "Conv", "IntegerToFloatConv")),
    ],
)
def test_operations_on_integers_are_known_by_their_words(op, expected):
    assert computes_on_integers(helper.make_node(op, ["x"], ["y"])) is expected


@pytest.mark.parametrize(
    ("name", "limits"),
    [
        *(("uint8", (0, 255)), ("int8", (-128, 127)), ("int4", (-8, 7)), ("uint2", (0, 3)), ("int16", (-32768, 32767))),
        *(("float8e4m3fn", None), ("", None), ("uint8x", None), ("xint8", None), ("int", None)),
    ],
)
def test_the_limits_of_integer_types(name, limits):
    assert integer_limits(name) == limits


def test_a_type_below_8_bits_is_named_by_its_field_with_old_versions_of_onnx():
    assert type_name(np.dtype(np.uint8)) == "uint8"
    assert type_name(np.dtype((np.uint8, {"uint4": (np.uint8, 0)}))) == "uint4"
