"""A graph in half precision: where casts stand, which copies and names there are, and that ends keep their type."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto
from pass_graphs import computed, model_of, operators, saved

from qdq_workbench.export.passes.to_half import PASS, to_half
from qdq_workbench.graph.half_precision import HALF_TYPES, HalfRequest
from qdq_workbench.onnx_graph.element_types import element_types
from qdq_workbench.onnx_graph.graph import Graph
from qdq_workbench.onnx_graph.snapshot import snapshot
from qdq_workbench.onnx_graph.truncation import halves_are_truncated
from qdq_workbench.verification.rounded_form import rounded_form

FLOAT, HALF = TensorProto.FLOAT, TensorProto.FLOAT16
EYE = np.eye(4, dtype=np.float32) * np.float32(1.0009765625)  # exact in float16
WEIGHT = {"w": EYE}


def halved(rows, outputs="y", constants=None, *, ends=False, why=None, scales=True, kind="float16", opset=19):
    """Rewrite a graph; check types, the contract and the values; return it and its request."""
    model = model_of(rows, {"x": (2, 4)}, outputs, constants, opset=opset)
    graph = Graph(model)
    graph.half = HalfRequest(HALF_TYPES[kind], scales, lambda name: (why or {}).get(name, ""), ends=ends)
    to_half(graph)
    assert list(PASS.denied_by(graph)) == []
    after = snapshot(graph)
    to_half(graph)
    assert snapshot(graph) == after
    proto = saved(graph)
    onnx.checker.check_model(proto, full_check=True)
    wanted = {value.type.tensor_type.elem_type for value in (*proto.graph.input, *proto.graph.output)}
    assert wanted <= ({HALF} if ends else {FLOAT, TensorProto.INT8})
    if not ends:
        runs = rounded_form(proto) if halves_are_truncated() else proto
        for before, now in zip(computed(model), computed(runs), strict=True):
            np.testing.assert_allclose(now, before, atol=0.02)
    return graph, graph.half


def casts(graph):
    """The casts, by what they read and the type that they write."""
    return sorted((n.inputs[0], "half" if n.get("to") == HALF else "float") for n in graph.nodes if n.op == "Cast")


def types(graph):
    found = element_types(graph)
    return {node.name: {HALF: "half", FLOAT: "float"}.get(found[node.output]) for node in graph.nodes}


def test_without_a_request_nothing_changes():
    graph = Graph(model_of([("MatMul", "x,w", "y")], {"x": (2, 4)}, "y", WEIGHT, opset=19))
    before = snapshot(graph)
    to_half(graph)
    assert snapshot(graph) == before


# Casts


def test_a_product_is_cast_at_both_ends_and_its_weight_is_stored_in_half():
    graph, request = halved([("MatMul", "x,w", "y")], constants=WEIGHT)
    assert operators(graph) == ["Cast", "MatMul", "Cast"]
    node = next(node for node in graph.nodes if node.op == "MatMul")
    assert (node.name, node.inputs[0], node.output) == ("y", "x/to_float16:0", "y/float16")
    assert graph.constant(node.inputs[1]).dtype == np.float16
    assert "w" not in graph.constants
    assert (request.half, request.kept) == (["y"], {})
    assert graph.shape("y") == graph.shape("y/float16") == graph.shape("x/to_float16:0") == (2, 4)


def test_the_output_keeps_its_name_for_its_readers_in_the_other_type_too():
    rows = [("MatMul", "x,w", "p"), ("MatMul", "p,w", "y"), ("Softmax", "p", "z")]
    graph, _ = halved(rows, "p,y,z", WEIGHT)
    assert casts(graph) == [("p/float16", "float"), ("x", "half"), ("y/float16", "float")]
    assert next(node for node in graph.nodes if node.op == "Softmax").inputs == ["p"]
    (second,) = [node for node in graph.nodes if node.name == "y"]
    assert second.inputs[0] == "p/float16"


def test_one_cast_serves_all_readers_of_a_type():
    rows = [("MatMul", "x,w", "p"), ("MatMul", "x,v", "q"), ("Softmax", "x", "s"), ("MatMul", "x,u", "y")]
    graph, request = halved(rows, "p,q,s,y", {**WEIGHT, "v": EYE, "u": EYE})
    assert [pair for pair in casts(graph) if pair[0] == "x"] == [("x", "half")]
    assert len(graph.readers("x/to_float16:0")) == 3
    assert request.kept["s"].startswith("a softmax")


def test_what_stands_between_floats_stays_float():
    rows = [("Softmax", "x", "s"), ("Relu", "s", "r"), ("Softmax", "r", "t"), ("MatMul", "t,w", "y")]
    graph, request = halved(rows, constants=WEIGHT)
    assert request.kept["r"] == "between tensors in float32: in half precision it would only add casts"
    assert types(graph)["r"] == "float"
    assert request.half == ["y"]


def test_a_reason_of_the_model_keeps_a_node():
    rows = [("MatMul", "x,w", "p"), ("MatMul", "p,w", "q"), ("MatMul", "q,w", "y")]
    graph, request = halved(rows, constants=WEIGHT, why={"q": "too large"})
    assert request.kept == {"q": "too large"}
    assert sorted(request.half) == ["p", "y"]
    assert {value.dtype for value in graph.constants.values()} == {np.dtype("float16"), np.dtype("float32")}


def test_ends_in_half_precision_need_no_cast():
    graph, _ = halved([("MatMul", "x,w", "p"), ("Relu", "p", "y")], "p,y", WEIGHT, ends=True)
    assert operators(graph) == ["MatMul", "Relu"]
    rows = [("Softmax", "x", "s"), ("MatMul", "s,w", "p"), ("Softmax", "p", "y")]
    graph, _ = halved(rows, constants=WEIGHT, ends=True)
    assert casts(graph) == [("p", "float"), ("s", "half"), ("x", "float"), ("y/float32", "half")]


def test_a_cast_from_integers_is_copied_for_readers_in_half():
    rows = [
        ("Shape", "x", "n"),
        ("Cast", "n", "f", {"to": FLOAT}),
        ("ReduceMax", "f", "m"),
        ("MatMul", "x,w", "p"),
        ("Mul", "p,m", "y"),
        ("ReduceSum", "f", "z"),
    ]
    graph, _ = halved(rows, "y,z", WEIGHT)
    assert ("n", "half") in casts(graph)
    assert ("n", "float") in casts(graph)
    assert {node.name for node in graph.nodes if node.op == "Cast"} >= {"f", "f/float16"}
    assert ("f", "half") not in casts(graph)


# Pairs and weights


GRID = {"s": np.float32(0.1), "z": np.int8(3)}


def scales(graph):
    """The type and the value of the scale of every Q and DQ."""
    found = {n.name: graph.constant(n.inputs[1]) for n in graph.nodes if n.op.endswith("Linear")}
    return {name: (str(value.dtype), float(value)) for name, value in found.items()}


ROUNDED = float(np.float16(0.1))


def test_a_pair_between_products_needs_no_cast():
    rows = [
        ("MatMul", "x,w", "p"),
        ("QuantizeLinear", "p,s,z", "q"),
        ("DequantizeLinear", "q,s,z", "d"),
        ("MatMul", "d,w", "y"),
    ]
    graph, _ = halved(rows, constants={**WEIGHT, **GRID})
    assert scales(graph) == {"q": ("float16", ROUNDED), "d": ("float16", ROUNDED)}
    assert casts(graph) == [("x", "half"), ("y/float16", "float")]


def test_a_pair_between_floats_keeps_its_exact_scale():
    rows = [("QuantizeLinear", "x,s,z", "q"), ("DequantizeLinear", "q,s,z", "d"), ("Softmax", "d", "y")]
    graph, _ = halved([*rows, ("MatMul", "x,w", "p")], "y,p", {**WEIGHT, **GRID})
    assert set(scales(graph).values()) == {("float32", float(np.float32(0.1)))}


def test_all_parts_of_a_pair_with_readers_of_both_types_have_one_scale():
    rows = [
        ("QuantizeLinear", "x,s,z", "q"),
        ("DequantizeLinear", "q,s,z", "in/DequantizeLinear"),
        ("MatMul", "in/DequantizeLinear,w", "y"),
        ("Softmax", "in/DequantizeLinear", "t"),
    ]
    graph, _ = halved(rows, "y,t", {**WEIGHT, **GRID})
    own = "in/float16/DequantizeLinear"
    assert scales(graph) == {
        "q": ("float32", ROUNDED),
        "in/DequantizeLinear": ("float32", ROUNDED),
        own: ("float16", ROUNDED),
    }
    (copied,) = [node for node in graph.nodes if node.name == own]
    assert (copied.output, graph.shape(copied.output)) == ("in/float16/dequantized", (2, 4))
    assert casts(graph) == [("y/float16", "float")]
    assert {"s/rounded", "s/float16"} <= set(graph.constants)


def test_a_part_of_a_pair_has_its_axis():
    axis = {"axis": 1}
    rows = [
        ("QuantizeLinear", "x,s,z", "q", axis),
        ("DequantizeLinear", "q,s,z", "d", axis),
        ("MatMul", "d,w", "y"),
        ("Softmax", "d", "t"),
    ]
    grid = {"s": np.float32([0.1, 0.2, 0.5, 1]), "z": np.zeros(4, np.int8)}
    graph, _ = halved(rows, "y,t", {**WEIGHT, **grid})
    assert [node.get("axis") for node in graph.nodes if node.op.endswith("Linear")] == [1, 1, 1]


def test_a_dequantized_output_is_a_reader_in_float():
    rows = [("QuantizeLinear", "x,s,z", "q"), ("DequantizeLinear", "q,s,z", "d"), ("MatMul", "d,w", "y")]
    graph, _ = halved(rows, "y,d", {**WEIGHT, **GRID})
    assert scales(graph)["d"] == ("float32", ROUNDED)
    assert sorted(types(graph).values(), key=str) == [None, "float", "float", "half", "half"]


def test_a_pair_whose_scale_does_not_fit_is_cast_outside():
    rows = [
        ("MatMul", "x,w", "p"),
        ("QuantizeLinear", "p,s,z", "q"),
        ("DequantizeLinear", "q,s,z", "d"),
        ("Add", "d,c", "a"),
        ("MatMul", "a,w", "y"),
    ]
    coarse = {"s": np.float32(2.0**-24 * 1.5), "z": np.int8(0), "c": np.float32([0, 1, 2, 3])}
    graph, _ = halved(rows, constants={**WEIGHT, **coarse})
    assert set(scales(graph).values()) == {("float32", float(coarse["s"]))}
    assert ("p", "float") in casts(graph)


def test_a_target_with_float_scales_gets_them():
    rows = [
        ("MatMul", "x,w", "p"),
        ("QuantizeLinear", "p,s,z", "q"),
        ("DequantizeLinear", "q,s,z", "d"),
        ("Add", "d,d", "y"),
    ]
    graph, _ = halved(rows, constants={**WEIGHT, **GRID}, scales=False)
    assert {kind for kind, _ in scales(graph).values()} == {"float32"}


def weight():
    return [("DequantizeLinear", "codes,ws,wz", "d", {"axis": 1})]


CODES = {"codes": np.eye(4, dtype=np.int8), "ws": np.float32([0.5, 0.1, 1, 2]), "wz": np.zeros(4, np.int8)}


def test_a_weight_is_dequantized_to_the_type_of_its_readers():
    graph, _ = halved([*weight(), ("MatMul", "x,d", "y")], constants=CODES)
    node = graph.producer("d")
    assert graph.constant(node.inputs[1]).dtype == np.float16
    assert node.get("axis") == 1
    graph, _ = halved([*weight(), ("MatMul", "x,d", "y")], constants=CODES, why={"y": "too large"})
    assert graph.constant(graph.producer("d").inputs[1]).dtype == np.float32


def test_a_weight_whose_scale_does_not_fit_is_cast_for_its_readers():
    rows = [("MatMul", "x,w", "p"), *weight(), ("Add", "p,d", "a"), ("MatMul", "a,w", "y")]
    coarse = {**CODES, "codes": np.full((2, 4), 127, np.int8), "ws": np.full(4, 2.0**-24 * 1.5, np.float32)}
    graph, _ = halved(rows, constants={**WEIGHT, **coarse})
    assert graph.constant(graph.producer("d").inputs[1]).dtype == np.float32
    assert ("d", "half") in casts(graph)


def test_equal_constants_are_written_once_per_type():
    rows = [("MatMul", "x,w", "p"), ("MatMul", "p,w", "y"), ("Neg", "x", "n"), ("MatMul", "n,w", "z")]
    graph, _ = halved(rows, "y,z", WEIGHT, why={"z": "too large"})
    assert sorted(graph.constants) == ["w", "w/float16"]


def test_constants_that_are_no_floats_stay():
    rows = [("MatMul", "x,w", "p"), ("Reshape", "p,shape", "y")]
    graph, _ = halved(rows, constants={**WEIGHT, "shape": np.array([4, 2])})
    assert graph.constant("shape").dtype == np.int64


# The contract


@pytest.mark.parametrize(
    ("rows", "denied"),
    [
        ([("Cast", "x", "a", {"to": HALF}), ("Cast", "a", "y", {"to": FLOAT})], ["y"]),
        ([("Cast", "x", "a", {"to": TensorProto.INT32}), ("Cast", "a", "y", {"to": HALF})], []),
        ([("Cast", "x", "a", {"to": HALF}), ("Cast", "a", "y", {"to": TensorProto.BOOL})], []),
        ([("Cast", "x", "a", {"to": HALF}), ("Add", "a,x", "y")], ["y"]),
        ([("Cast", "x", "a", {"to": HALF}), ("Add", "a,a", "y")], []),
        ([("Cast", "x", "a", {"to": HALF}), ("QuantizeLinear", "a,s,z", "y")], ["y"]),
        ([("Add", "x,x", "y")], []),
    ],
)
def test_what_denies_the_contract(rows, denied):
    ends = [onnx.helper.make_tensor_value_info(name, FLOAT, (2, 4)) for name in "xy"]
    nodes = [onnx.helper.make_node(op, r.split(","), [w], w, **(more[0] if more else {})) for op, r, w, *more in rows]
    constants = [onnx.numpy_helper.from_array(np.asarray(value), name) for name, value in GRID.items()]
    graph = onnx.helper.make_graph(nodes, "denied", ends[:1], ends[1:], constants)
    opened = Graph(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 19)]))
    assert [node.name for node in PASS.denied_by(opened)] == denied
