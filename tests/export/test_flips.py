"""Every kind of operation in the channels-first layout: the same values, and none that cannot be flipped is changed."""

import numpy as np
import pytest
from onnx import TensorProto
from pass_graphs import assert_same, computed, model_of, opened, operators, saved

from qdq_workbench.export.passes.flips import FLIPS
from qdq_workbench.graph.operators import UNARY, operators_of
from qdq_workbench.onnx_graph.graph import Graph
from qdq_workbench.onnx_graph.snapshot import snapshot
from qdq_workbench.onnx_graph.transposes import transpose_output

IMAGE = (2, 4, 5, 3)
RANDOM = np.random.default_rng(0)


def flip(graph, name="y", rank=4):
    """Flip one node as the pass does; return whether that was possible."""
    node = graph.producer(name)
    outputs = list(node.outputs)
    permutations = FLIPS[node.op](graph, node, rank)
    if permutations is None:
        return False
    assert len(permutations) == len(outputs)
    for index, perm in enumerate(permutations):
        transpose_output(graph, node, index, perm)
    return True


def values(*shape):
    return RANDOM.normal(size=shape).astype(np.float32)


def check(rows, inputs, outputs="y", constants=None, *, rank=4, opset=17):
    """Check that the node behind the first output is flipped and the graph computes the same; return the graph."""
    model = model_of(rows, inputs, outputs, constants, opset=opset)
    graph = Graph(model)
    assert flip(graph, outputs.split(",")[0], rank)
    assert_same(model, graph)
    assert "Transpose" in operators(graph)
    return graph


def refused(rows, inputs, constants=None):
    graph = opened(rows, inputs, "y", constants)
    before = snapshot(graph)
    assert not flip(graph)
    assert snapshot(graph) == before


@pytest.mark.parametrize("rank", [3, 4, 5])
def test_one_input_at_any_rank(rank):
    check([("Sigmoid", "x", "y")], {"x": IMAGE[:1] + (4, 5, 3, 2)[: rank - 1]}, rank=rank)


@pytest.mark.parametrize("operator", sorted(UNARY - {"Cast", "Not", "Mish", "Gelu", "HardSwish", "Swish"}))
def test_every_function_of_one_tensor_is_flipped(operator):
    check([("Abs", "x", "a"), (operator, "a", "y")], {"x": IMAGE})


def test_further_inputs_of_an_operation_on_one_tensor_stay():
    constants = {"low": np.float32(-0.5), "high": np.float32(0.5)}
    graph = check([("Clip", "x,low,high", "y")], {"x": IMAGE}, constants=constants)
    assert graph.producer(graph.producer("y").inputs[0]).inputs[1:] == ["low", "high"]


# Broadcasting


@pytest.mark.parametrize("shape", [(), (1,), (3,), (5, 3), (5, 1), (4, 1, 3), (2, 1, 1, 3), IMAGE])
@pytest.mark.parametrize("first", [False, True])
def test_constants_of_any_rank_are_transposed_once(shape, first):
    reads = "c,x" if first else "x,c"
    graph = check([("Sub", reads, "y")], {"x": IMAGE}, constants={"c": values(*shape)})
    assert operators(graph) == ["Transpose", "Sub", "Transpose"]


@pytest.mark.parametrize(("shape", "more"), [((), 0), ((3,), 1), ((5, 3), 1), ((2, 1, 1, 3), 0)])
def test_computed_operands_of_lower_rank_get_leading_axes(shape, more):
    graph = check([("Mul", "x,c", "y")], {"x": IMAGE, "c": shape})
    assert operators(graph).count("Unsqueeze") == more


def test_three_operands_of_a_choice_are_all_moved():
    rows = [("Greater", "x,z", "g"), ("Where", "g,x,c", "y")]
    check(rows, {"x": IMAGE, "z": IMAGE}, constants={"c": values(3)})


# Operations with an axis


@pytest.mark.parametrize("axis", [1, 2, 3, -1, -3])
def test_the_axis_of_a_softmax_moves_and_a_negative_one_counts_from_the_end(axis):
    check([("Softmax", "x", "y", {"axis": axis})], {"x": IMAGE})


@pytest.mark.parametrize("op", ["Softmax", "LogSoftmax"])
def test_a_softmax_without_an_axis_is_one_over_the_last(op):
    graph = check([(op, "x", "y")], {"x": IMAGE})
    assert graph.producer(graph.producer("y").inputs[0]).get("axis") == 1


def test_a_split_without_an_axis_divides_the_batch_and_all_its_outputs_turn_back():
    sizes = {"sizes": np.array([1, 1])}
    graph = check([("Split", "x,sizes", "y,z")], {"x": IMAGE}, "y,z", sizes)
    assert operators(graph).count("Transpose") == 3
    check([("Split", "x,sizes", "y,z", {"axis": -1})], {"x": IMAGE}, "y,z", {"sizes": np.array([1, 2])})


@pytest.mark.parametrize("axis", [1, 3, -1])
def test_a_join_with_a_constant(axis):
    shape = list(IMAGE)
    shape[axis] = 2
    check([("Concat", "x,c", "y", {"axis": axis})], {"x": IMAGE}, constants={"c": values(*shape)})


def test_a_join_of_another_rank_stays():
    rows = [("Reshape", "x,s", "r"), ("Concat", "r,r", "y", {"axis": 1})]
    refused(rows, {"x": IMAGE}, {"s": np.array([2, 4, 15])})


# Reductions and Squeeze


@pytest.mark.parametrize("axes", [[1], [3], [-1], [1, 2], [2, 1], [1, 3], [0], [0, 1, 2, 3]])
@pytest.mark.parametrize("keepdims", [0, 1])
def test_the_remaining_axes_of_a_reduction_keep_their_order(axes, keepdims):
    graph = Graph(model := model_of([("ReduceMax", "x", "y", {"axes": axes, "keepdims": keepdims})], {"x": IMAGE}, "y"))
    assert flip(graph)
    assert_same(model, graph)


@pytest.mark.parametrize("operator", sorted(operators_of("reduction")))
def test_every_reduction_is_flipped(operator):
    check([("Abs", "x", "a"), (operator, "a,axes", "y")], {"x": IMAGE}, constants={"axes": np.array([1, 3])}, opset=18)


@pytest.mark.parametrize("axes", [[1], [-2, -3], [3]])
def test_axes_that_are_an_input(axes):
    attributes = {"keepdims": 0, "noop_with_empty_axes": 1}
    graph = check([("ReduceSum", "x,axes", "y", attributes)], {"x": IMAGE}, constants={"axes": np.array(axes)})
    (node,) = [node for node in graph.nodes if node.op == "ReduceSum"]
    assert (node.get("keepdims"), node.get("noop_with_empty_axes")) == (0, 1)


def test_a_squeeze_drops_its_axes_whatever_keepdims_says():
    model = model_of([("Squeeze", "x,axes", "y")], {"x": (2, 1, 5, 3)}, "y", {"axes": np.array([1])})
    graph = Graph(model)
    assert flip(graph)
    assert_same(model, graph)


def test_unknown_axes_stay():
    refused([("ReduceMax", "x", "y")], {"x": IMAGE})
    rows = [("Cast", "a", "axes", {"to": TensorProto.INT64}), ("ReduceSum", "x,axes", "y")]
    refused(rows, {"x": IMAGE, "a": (1,)})


# Padding


PADS = np.array([0, 1, 2, 0, 0, 0, 3, 1])


@pytest.mark.parametrize("mode", ["constant", "edge", "reflect"])
def test_padding_moves_on_both_sides(mode):
    check([("Pad", "x,pads", "y", {"mode": mode})], {"x": IMAGE}, constants={"pads": PADS})
    check(
        [("Pad", "x,pads,v", "y", {"mode": mode})],
        {"x": IMAGE},
        constants={"pads": PADS, "v": np.float32(2)},
    )


def test_padding_of_unknown_or_some_axes_stays():
    rows = [("Cast", "p", "pads", {"to": TensorProto.INT64}), ("Pad", "x,pads", "y")]
    refused(rows, {"x": IMAGE, "p": (8,)})
    for axes in (np.arange(4), np.array([1, 3])):
        constants = {"pads": PADS[: 2 * axes.size], "axes": axes}
        assert not flip(opened([("Pad", "x,pads,,axes", "y")], {"x": IMAGE}, "y", constants, opset=18))


# Slices


def slice_of(starts, ends, axes=None, steps=None, kind=np.int64):
    names = {"s": starts, "e": ends, **({"a": axes} if axes else {}), **({"t": steps} if steps else {})}
    reads = ",".join(["x", "s", "e", "a" if axes else "", "t" if steps else ""]).rstrip(",")
    constants = {name: np.array(value, kind) for name, value in names.items()}
    return [("Slice", reads, "y")], constants


@pytest.mark.parametrize(
    "given",
    [
        ([1], [3], [1]),
        ([1, 0], [3, 2], [-2, 3]),
        ([0, 1, 1], [2, 3, 4]),
        ([0, 1], [2, 4], None, [1, 2]),
        ([3], [0], [1], [-1]),
    ],
    ids=["one axis", "from the end", "no axes", "steps without axes", "backwards"],
)
@pytest.mark.parametrize("kind", [np.int32, np.int64])
def test_the_axes_of_a_slice_move_and_have_the_type_of_its_other_numbers(given, kind):
    rows, constants = slice_of(*given, kind=kind)
    graph = check(rows, {"x": IMAGE}, constants=constants)
    node = graph.producer(graph.producer("y").inputs[0])
    assert graph.constant(node.inputs[3]).dtype == kind


def test_a_slice_of_computed_places_moves_if_their_number_is_known():
    rows = [("Cast", "p", "s", {"to": TensorProto.INT64}), ("Slice", "x,s,e", "y")]
    graph = opened(rows, {"x": IMAGE, "p": (2,)}, "y", {"e": np.array([2, 3])})
    assert flip(graph)
    (node,) = [node for node in graph.nodes if node.op == "Slice"]
    assert graph.constant(node.inputs[3]).tolist() == [0, 2]  # batch, and the rows behind the channels
    refused(rows, {"x": IMAGE, "p": ("n",)}, {"e": np.array([2, 3])})


def test_a_slice_with_computed_axes_stays():
    rows = [("Cast", "p", "a", {"to": TensorProto.INT64}), ("Slice", "x,s,e,a", "y")]
    refused(rows, {"x": IMAGE, "p": (1,)}, {"s": np.array([0]), "e": np.array([2])})


# Halves of pairs


def paired(scale, zero, **axis):
    rows = [("QuantizeLinear", "x,s,z", "q", axis), ("DequantizeLinear", "q,s,z", "y", axis)]
    return rows, {"s": np.asarray(scale, np.float32), "z": np.asarray(zero, np.uint8)}


@pytest.mark.parametrize(
    ("scale", "zero", "axis"),
    [(0.1, 8, {}), ([0.1, 0.2, 0.3], [8, 0, 3], {"axis": 3}), ([0.1, 0.2, 0.3, 0.4], [8, 0, 3, 9], {})],
    ids=["one scale", "one per channel", "along the axis 1, by default"],
)
def test_the_scales_of_a_pair_stay_on_their_axis(scale, zero, axis):
    rows, constants = paired(scale, zero, **axis)
    model = model_of(rows, {"x": IMAGE}, "y", constants)
    graph = Graph(model)
    assert flip(graph, "q")
    assert flip(graph, "y")
    assert_same(model, graph)
    assert all(("axis" in node.attributes) == (np.ndim(scale) == 1) for node in graph.nodes if "Linear" in node.op)


def test_a_weight_keeps_the_layout_of_its_reader():
    rows = [("DequantizeLinear", "w,s", "d"), ("Add", "x,d", "y")]
    graph = opened(rows, {"x": IMAGE}, "y", {"w": np.ones(IMAGE, np.int8), "s": np.float32(0.1)})
    before = snapshot(graph)
    assert not flip(graph, "d")
    assert snapshot(graph) == before


def test_values_are_compared_at_all():
    """The other tests would pass for an operation on equal values."""
    model = model_of([("Softmax", "x", "y", {"axis": 1})], {"x": IMAGE}, "y")
    graph = Graph(model)
    graph.producer("y").set("axis", 2)
    assert not np.allclose(computed(model)[0], computed(saved(graph))[0])
