"""The graph that passes edit: its indexes follow every change, bodies of loops and branches included."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from pass_contracts import index_errors
from pass_graphs import model_of, opened, operators

from qdq_workbench.errors import ExportError
from qdq_workbench.graph.half_precision import HALF_TYPES, HalfRequest
from qdq_workbench.onnx_graph.graph import Graph, Node, outer_reads, rename_reads, standard_opset

SHAPE = (2, 3)


def chain():
    return opened([("Relu", "x", "a"), ("Neg", "a", "b"), ("Abs", "b", "y")], {"x": SHAPE}, "y")


def body(*rows, outputs, name="body"):
    """A body without inputs, which reads the tensors around it."""
    nodes = [helper.make_node(op, reads.split(","), [written]) for op, reads, written in rows]
    ends = [helper.make_tensor_value_info(output, TensorProto.FLOAT, None) for output in outputs]
    return helper.make_graph(nodes, name, [], ends)


def branching(then, otherwise):
    """A graph whose last node is an If with two given branches."""
    graph = opened(
        [("Relu", "x", "a"), ("Neg", "x", "b"), ("Cast", "x", "c", {"to": TensorProto.BOOL})], {"x": SHAPE}, "y"
    )
    graph.add("If", ["c"], "if", output="y", then_branch=then, else_branch=otherwise)
    return graph


# Opening


def test_the_standard_opset_is_found_behind_others_and_by_both_of_its_names():
    other = helper.make_opsetid("com.microsoft", 3)
    for name in ("", "ai.onnx"):
        model = helper.make_model(
            helper.make_graph([], "empty", [], []), opset_imports=[other, helper.make_opsetid(name, 13)]
        )
        assert standard_opset(model) == 13
        assert [(entry.domain, entry.version) for entry in Graph(model).other_domains] == [("com.microsoft", 3)]
    del model.opset_import[1]
    assert standard_opset(model) == 1


def test_constants_are_initializers_and_constant_nodes_but_no_inputs():
    weight = {"w": np.ones(SHAPE, np.float32)}
    model = model_of([("Add", "x,w", "a"), ("Mul", "a,c", "y")], {"x": SHAPE, "w": SHAPE}, "y", weight)
    value = numpy_helper.from_array(np.full(3, 2.0, np.float32))
    model.graph.node.insert(0, helper.make_node("Constant", [], ["c"], value=value))
    graph = Graph(model)
    assert list(graph.inputs) == ["x"]  # files of IR version 3 list initializers there, too
    assert graph.constant("c").tolist() == [2.0, 2.0, 2.0]
    assert (graph.shape("c"), graph.rank("w"), graph.constant("x")) == ((3,), 2, None)
    assert operators(graph) == ["Add", "Mul"]
    assert graph.fresh("c") == "c__2"


def test_a_constant_node_of_another_form_stays_a_node():
    model = model_of([("Mul", "x,c", "y")], {"x": SHAPE}, "y")
    model.graph.node.insert(0, helper.make_node("Constant", [], ["c"], value_float=2.0))
    graph = Graph(model)
    assert graph.constant("c") is None
    assert graph.producer("c").op == "Constant"


def test_an_open_size_is_none_and_a_shape_of_no_axes_is_not_an_unknown_one():
    ends = [helper.make_tensor_value_info(n, 1, s) for n, s in (("x", ["n", 3, 0]), ("s", ()), ("u", None))]
    graph = Graph(helper.make_model(helper.make_graph([], "ends", ends, [])))
    assert graph.shape("x") == (None, 3, 0)
    assert (graph.shape("s"), graph.rank("s")) == ((), 0)
    assert (graph.shape("u"), graph.rank("u")) == (None, None)


def test_nodes_without_a_name_get_that_of_their_operator_with_a_number():
    nodes = [helper.make_node("Relu", ["x"], ["a"]), helper.make_node("Relu", ["a"], ["y"])]
    ends = [helper.make_tensor_value_info(name, 1, SHAPE) for name in "xy"]
    graph = Graph(helper.make_model(helper.make_graph(nodes, "unnamed", ends[:1], ends[1:])))
    assert [node.name for node in graph.sorted_nodes()] == ["Relu", "Relu__2"]


# Reading


def test_a_tensor_with_one_reader_that_is_an_output_too_has_more_than_one():
    graph = chain()
    assert graph.has_one_reader("a")
    assert not graph.has_one_reader("y")
    graph.outputs["a"] = graph.outputs["y"]
    assert not graph.has_one_reader("a")
    graph = opened([("Add", "x,x", "y")], {"x": SHAPE}, "y")
    assert graph.has_one_reader("x")  # one node, twice
    assert len(graph.readers("x")) == 1


def test_an_attribute_has_a_default_until_it_is_set():
    node = Node("Softmax", ["x"], ["y"])
    assert (node.get("axis"), node.get("axis", -1)) == (None, -1)
    node.set("axis", 0)
    assert (node.get("axis", -1), node.output) == (0, "y")


def test_inputs_that_are_left_out_are_read_by_nobody():
    graph = opened([("Clip", "x,,high", "y")], {"x": SHAPE}, "y", {"high": np.float32(1)})
    (node,) = graph.nodes
    assert graph.reads(node) == ["x", "high"]
    assert graph.readers("") == []


# Writing


def test_a_node_is_added_under_free_names():
    graph = chain()
    first = graph.add("Relu", ["b"], "a", more_outputs=["b", "b"], axis=None, alpha=0.5)
    assert (first.name, first.outputs) == ("a__2", ["a:0", "b__2", "b__3"])
    assert list(first.attributes) == ["alpha"]
    assert graph.producer("b__3") is first
    assert graph.add("Relu", ["b"], "a").outputs == ["a:0__2"]
    assert graph.add("Relu", ["b"], "c", output="y").output == "y__2"
    assert graph.readers("b") == [node for node in graph.nodes if "b" in node.inputs]


def test_the_output_of_a_removed_node_can_be_written_again_and_its_name_is_not_given_to_others():
    graph = chain()
    last = graph.producer("y")
    graph.remove(last)
    assert last not in graph
    assert graph.fresh("y") == "y__2"
    assert graph.add("Neg", ["a"], "y", output="y").name == "y"
    assert [node.op for node in graph.readers("a")] == ["Neg", "Neg"]
    assert index_errors(graph) == []


def test_removing_a_node_leaves_a_tensor_to_the_node_that_writes_it_now():
    graph = chain()
    old = graph.producer("y")
    new = Node("Neg", ["a"], ["y"], name="new")
    graph._insert(new)
    graph.remove(old)
    assert graph.producer("y") is new


def test_a_constant_gets_a_free_name_and_is_no_longer_pruned_once_it_is_read():
    graph = chain()
    assert graph.add_constant("a", np.zeros(3)) == "a__2"
    graph.prune()
    assert graph.constant("a__2") is None
    name = graph.add_constant("a", np.zeros(3))
    assert name == "a__3"  # names of what is gone are not used again
    graph.set_inputs(graph.producer("y"), ["b", name])
    graph.prune()
    assert graph.constant(name) is not None


def test_an_output_that_another_node_writes_is_refused():
    graph = chain()
    with pytest.raises(ExportError, match=r"Two nodes would write one tensor.*tensor='a', node='b'"):
        graph.set_output(graph.producer("b"), "a")
    assert index_errors(graph) == []


def test_set_output_moves_one_output_and_order_follows():
    graph = chain()
    assert operators(graph) == ["Relu", "Neg", "Abs"]
    node = graph.producer("a")
    graph.set_inputs(node, ["later"])
    assert operators(graph)[0] == "Relu"
    graph.set_output(graph.producer("y"), "later")
    assert operators(graph)[0] != "Relu"
    graph.set_output(graph.producer("later"), "y")
    graph.set_inputs(node, ["x"])
    graph.set_output(node, "inner")
    assert (graph.producer("a"), graph.producer("inner")) == (None, node)
    graph.add("Exp", ["inner"], "exp", output="a")
    assert operators(graph) == ["Relu", "Exp", "Neg", "Abs"]
    assert graph.fresh("inner") == "inner__2"
    graph.insert_output(node, 0, "before")
    assert node.outputs == ["before", "inner"]
    assert graph.producer("before") is node
    assert graph.fresh("before") == "before__2"


def test_reads_are_replaced_in_all_readers_or_in_those_that_are_given():
    rows = [("Relu", "x", "a"), ("Add", "a,a", "b"), ("Mul", "a,b", "y")]
    graph = opened(rows, {"x": SHAPE}, "y")
    graph.replace_reads("a", "x", [graph.producer("y")])
    assert (graph.producer("y").inputs, graph.producer("b").inputs) == (["x", "b"], ["a", "a"])
    graph.replace_reads("a", "x")
    assert graph.producer("b").inputs == ["x", "x"]
    assert graph.readers("a") == []
    assert index_errors(graph) == []


def test_pruning_keeps_what_outputs_need_and_follows_outputs_that_are_deleted():
    rows = [("Relu", "x", "a"), ("Add", "x,used", "y"), ("Add", "x,lost", "z")]
    constants = {"used": np.ones(3, np.float32), "lost": np.ones(3, np.float32), "kept": np.ones(3, np.float32)}
    graph = opened(rows, {"x": SHAPE}, "y,z,kept", constants)
    graph.prune()
    assert {node.output for node in graph.nodes} == {"y", "z"}
    assert set(graph.constants) == {"used", "lost", "kept"}
    del graph.outputs["z"]
    graph.prune()
    assert {node.output for node in graph.nodes} == {"y"}
    assert set(graph.constants) == {"used", "kept"}


def test_renamed_nodes_free_their_old_names():
    graph = chain()
    graph.rename({node: f"new_{node.name}" for node in graph.nodes})
    assert graph.add("Relu", ["b"], "a").name == "a"
    assert graph.add("Relu", ["b"], "new_b").name == "new_b__2"


def test_a_long_chain_is_sorted_without_recursion():
    nodes = [helper.make_node("Relu", [f"t{i}"], [f"t{i + 1}"], f"n{i}") for i in reversed(range(3000))]
    ends = [helper.make_tensor_value_info(name, 1, SHAPE) for name in ("t0", "t3000")]
    graph = Graph(helper.make_model(helper.make_graph(nodes, "deep", ends[:1], ends[1:])))
    assert [node.name for node in graph.sorted_nodes()] == [f"n{i}" for i in range(3000)]


# Copies


def test_a_changed_copy_leaves_the_graph_as_it_is():
    graph = branching(body(("Relu", "a", "t"), outputs=["t"]), body(("Relu", "b", "e"), outputs=["e"]))
    graph.half = HalfRequest(HALF_TYPES["float16"], scales=True, why_kept=lambda _: "")
    graph.slow_transposes = True
    graph.channels_first[graph.producer("a")] = None
    copied = graph.copy()
    assert (copied.half, copied.slow_transposes, copied.opset) == (graph.half, True, graph.opset)
    assert [node.name for node in copied.channels_first] == ["a"]
    assert not set(copied.nodes) & set(graph.nodes)
    copied.replace_reads("a", "x")
    copied.add_constant("new", np.zeros(1))
    copied.shapes["a"] = ()
    copied.producer("b").set("alpha", 1.0)
    del copied.outputs["y"]
    assert outer_reads(graph.producer("y").get("then_branch")) == ["a"]
    assert (graph.constant("new"), graph.shape("a"), list(graph.outputs)) == (None, SHAPE, ["y"])
    assert graph.producer("b").get("alpha") is None
    assert index_errors(graph) == index_errors(copied) == []
    assert copied.fresh("a") == "a__2"


# Bodies of loops and branches


def test_what_a_branch_reads_or_returns_counts_as_read_by_its_node():
    graph = branching(body(("Relu", "a", "t"), outputs=["t"]), body(outputs=["b"]))
    node = graph.producer("y")
    assert graph.reads(node) == ["c", "a", "b"]
    assert graph.has_one_reader("a")
    graph.prune()
    assert len(graph.nodes) == 4
    assert operators(graph)[-1] == "If"


def test_reads_inside_of_branches_are_replaced():
    graph = branching(body(("Add", "a,b", "t"), outputs=["t"]), body(outputs=["a"]))
    graph.replace_reads("a", "x")
    assert graph.reads(graph.producer("y")) == ["c", "x", "b", "x"]
    assert graph.readers("a") == []
    graph.prune()
    assert graph.producer("a") is None


def test_operators_of_other_domains_may_have_bodies_and_those_of_the_standard_without_them_are_not_searched():
    inner = body(outputs=["a"])
    for op, domain, read in (("Own", "own.domain", True), ("Loop", "", True), ("Relu", "", False)):
        node = Node(op, ["x"], ["y"], domain=domain)
        node.set("body", inner)
        assert (Graph.reads(node) == ["x", "a"]) is read


def test_a_list_of_bodies_is_read_too():
    node = Node("Own", [], ["y"], domain="own.domain")
    node.set("cases", [body(outputs=["a"]), body(("Relu", "b", "r"), outputs=["r"])])
    assert Graph.reads(node) == ["a", "b"]


def nested():
    """A body that shadows `a`, and has one inside that reads `a`, its own and an outer tensor."""
    inner = body(("Add", "a,outer", "sum"), ("Neg", "sum", "n"), outputs=["n"], name="inner")
    around = body(("Relu", "c", "r"), outputs=["r", "outer"], name="around")
    around.node.append(helper.make_node("If", ["r"], ["y"], then_branch=inner, else_branch=inner))
    return around


def test_what_a_body_has_itself_is_not_read_from_outside():
    around = nested()
    assert outer_reads(around) == ["outer", "c", "a", "outer", "a", "outer"]
    around.input.append(helper.make_tensor_value_info("a", 1, None))
    around.initializer.append(numpy_helper.from_array(np.zeros(1, np.float32), "c"))
    assert set(outer_reads(around)) == {"outer"}


def test_names_change_in_nested_bodies_and_in_what_a_body_returns():
    around = nested()
    rename_reads(around, "outer", "new")
    assert set(outer_reads(around)) == {"new", "c", "a"}
    assert [value.name for value in around.output] == ["r", "new"]
    inner = onnx.helper.get_attribute_value(around.node[1].attribute[0])
    assert list(inner.node[0].input) == ["a", "new"]
