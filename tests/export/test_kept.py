"""Why a node stays in float32: one small graph per rule, and its neighbour that the rule does not concern."""

import numpy as np
import pytest
from onnx import TensorProto
from pass_graphs import opened

from qdq_workbench.export.half.kept import Kept
from qdq_workbench.graph.half_precision import HALF_TYPES, KEPT, HalfRequest
from qdq_workbench.onnx_graph.element_types import element_types

FLOAT16, BFLOAT16 = HALF_TYPES["float16"], HALF_TYPES["bfloat16"]
INT64, FLOAT = TensorProto.INT64, TensorProto.FLOAT


def rules(rows, outputs="y", constants=None, *, shape=(2, 4), kind=FLOAT16, opset=19, scales=True, why=None):
    graph = opened(rows, {"x": shape}, outputs, constants, opset=opset)
    request = HalfRequest(kind, scales=scales, why_kept=lambda name: (why or {}).get(name, ""))
    return graph, Kept(graph, element_types(graph), request)


def reasons(*args, **kwargs):
    """Node -> why it stays."""
    return {node.name: reason for node, reason in rules(*args, **kwargs)[1].reasons().items()}


# By operator


def test_operators_of_the_table_have_its_reasons():
    assert reasons([("Softmax", "x", "a"), ("Relu", "a", "y")]) == {"a": KEPT["Softmax"]}


def test_a_square_is_a_product_of_a_tensor_with_itself():
    found = reasons([("Mul", "x,x", "y"), ("Neg", "x", "n"), ("Mul", "x,n", "z"), ("Add", "x,x", "s")], "y,z,s")
    assert list(found) == ["y"]
    assert found["y"].startswith("squares a tensor")


@pytest.mark.parametrize(
    "row", [("RandomUniformLike", "x", "y"), ("RandomNormal", "", "y", {"shape": [2, 4]}), ("EyeLike", "x", "y")]
)
def test_an_operator_whose_type_is_an_attribute_keeps_it(row):
    found = reasons([row])
    assert found == {"y": "its type is an attribute of its own"}


@pytest.mark.parametrize(
    ("kind", "opset", "stays"), [(FLOAT16, 19, False), (BFLOAT16, 21, True), (BFLOAT16, 22, False)]
)
def test_an_operator_that_a_type_does_not_have_at_an_opset_stays(kind, opset, stays):
    found = reasons([("HardSwish", "x", "y")], kind=kind, opset=opset)
    assert found == ({"y": "the operator does not exist in this type at this opset"} if stays else {})


def test_an_operator_of_another_domain_stays():
    graph, _ = rules([("Relu", "x", "y")])
    graph.producer("y").domain = "own.domain"
    kept = Kept(graph, element_types(graph), HalfRequest(FLOAT16, scales=True, why_kept=lambda _: ""))
    assert list(kept.reasons().values()) == ["the operator does not exist in this type at this opset"]


def test_a_layer_gives_a_reason_by_the_name_of_its_node_and_an_operator_comes_first():
    rows = [("Relu", "x", "a"), ("Softmax", "a", "b"), ("Neg", "b", "y")]
    found = reasons(rows, why={"a": "its values reach 1e6", "b": "unheard"})
    assert found == {"a": "its values reach 1e6", "b": KEPT["Softmax"]}


# By constants


@pytest.mark.parametrize(
    ("op", "value", "fits"),
    [
        ("Add", [1e5, 1.0], False),  # overflows
        ("Mul", [1.0, 1e-7], False),  # a factor loses digits
        ("Add", [1.0, 1e-7], True),  # beside large ones in a sum it does not count
        ("Div", [1.0, 1e-7], False),
        ("Max", [1.0, 1e-7], False),
        ("Sub", [1.0, 1e-7], True),
        ("Mul", [1.0, np.inf], True),
        ("Add", [1e-9, 1e-9], False),
    ],
)
def test_a_constant_has_to_fit(op, value, fits):
    found = reasons([(op, "x,c", "y")], constants={"c": np.float32(value)}, shape=(2, 2))
    assert bool(found) is not fits
    assert all("one of its constants" in reason for reason in found.values())


def test_constants_of_integers_are_not_floats():
    found = reasons([("Reshape", "x,s", "y")], constants={"s": np.array([100_000_000, -1])}, shape=(10**8, 1))
    assert found == {}


# By scales


def product(scale, zero=0, dtype=np.int8, axis=None, codes=None, **more):
    """A product with a dequantized weight."""
    scale = np.asarray(scale, np.float32)
    codes = np.full((4, 2), 127, dtype) if codes is None else codes
    rows = [("DequantizeLinear", "w,s,z", "d", {"axis": axis} if axis is not None else {}), ("MatMul", "x,d", "y")]
    return rules(rows, constants={"w": codes, "s": scale, "z": np.full(scale.shape, zero, dtype)}, **more)


COARSE = np.float32(2.0**-24 * 1.5)  # float16 has no value between 1 and 2 of these


@pytest.mark.parametrize(
    ("given", "fits"),
    [
        ({"scale": 0.1}, True),
        ({"scale": COARSE}, False),
        ({"scale": COARSE, "codes": np.zeros((4, 2), np.int8)}, True),  # all at the zero point
        ({"scale": COARSE, "zero": 127}, True),
        ({"scale": [0.1, COARSE], "axis": 1}, False),
        ({"scale": [0.1, COARSE], "axis": 1, "codes": np.full((4, 2), [127, 0], np.int8)}, True),
        ({"scale": [0.1, COARSE], "axis": 1, "codes": np.full((4, 2), [0, -1], np.int8)}, False),
        ({"scale": [0.1] * 4, "axis": 0, "codes": np.zeros((4, 0), np.int8)}, True),
        ({"scale": 0.1, "kind": BFLOAT16, "opset": 22}, True),
        ({"scale": 0.1003, "kind": BFLOAT16, "opset": 22}, False),
        ({"scale": 0.1, "scales": False}, False),
        ({"scale": 0.1003, "dtype": np.int16, "codes": np.full((4, 2), 30000, np.int16)}, False),
    ],
    ids=str,
)
def test_a_scale_has_to_keep_its_integers_apart(given, fits):
    graph, kept = product(**given)
    node = graph.producer("d")
    assert kept.fits(node) is fits
    found = {node.name: reason for node, reason in kept.reasons().items()}
    wanted = "integer kernels of this target" if not given.get("scales", True) else "this type would move a scale"
    assert [reason.startswith(wanted) for reason in found.values()] == ([] if fits else [True])
    assert set(found) <= {"y"}


def pair(constants, reads="x,s,z", **attributes):
    rows = [("QuantizeLinear", reads, "q", attributes), ("DequantizeLinear", f"q{reads[1:]}", "d"), ("Relu", "d", "y")]
    graph, kept = rules(rows, constants=constants)
    return kept.fits(graph.producer("d"))


def test_of_a_pair_any_code_of_its_type_counts():
    coarse = np.float32(2.0**-14 * (1 + 2.0**-11))  # rounds by 2**-11 of its size
    assert pair({"s": coarse, "z": np.int8(0)})
    assert pair({"s": coarse, "z": np.uint8(0)})
    assert not pair({"s": coarse, "z": np.uint16(0)})
    assert not pair({"s": coarse, "z": np.int16(32767)})  # the farthest code is the lowest
    assert not pair({"s": coarse, "z": np.int16(-32768)})
    # 255 * 2**-11 is just below an eighth; codes of int8 around -128 reach as far
    assert pair({"s": coarse, "z": np.int8(-128)})


def test_scales_that_are_no_constants_of_float32_stay():
    assert not pair({"s": np.float32(0.1)}, reads="x,s")  # without a zero point the codes' type is not known here
    rows = [("Abs", "x", "s"), ("DequantizeLinear", "w,s,z", "d"), ("Relu", "d", "y")]
    graph, kept = rules(rows, constants={"w": np.int8(1), "z": np.int8(0)}, shape=())
    assert not kept.fits(graph.producer("d"))
    rows = [("DequantizeLinear", "w,s", "d"), ("Relu", "d", "y")]
    graph, kept = rules(rows, constants={"w": np.ones(3, np.int8), "s": np.float16(0.1)})
    assert not kept.fits(graph.producer("d"))
    graph, kept = rules(rows, constants={"w": np.ones(3, np.int8), "s": np.float32(0.1)})
    assert kept.fits(graph.producer("d"))


def test_a_scale_that_does_not_fit_keeps_products_and_nothing_else():
    rows = [("DequantizeLinear", "w,s,z", "d"), ("Add", "x,d", "y"), ("Gemm", "x,d", "p", {"transB": 1})]
    constants = {"w": np.full((2, 4), 127, np.int8), "s": COARSE, "z": np.int8(0)}
    found = rules(rows, "y,p", constants)[1].reasons()
    assert {node.name: reason[:9] for node, reason in found.items()} == {"p": "this type", "y": "it shares"}


def test_scales_in_blocks_are_judged_block_by_block():
    def fits(codes):
        rows = [("DequantizeLinear", "w,s,z", "d", {"axis": 0, "block_size": 2}), ("MatMul", "x,d", "y")]
        scale = np.float32([[0.1], [COARSE]])
        constants = {"w": np.array(codes, np.int8).reshape(4, 1), "s": scale, "z": np.zeros((2, 1), np.int8)}
        graph, kept = rules(rows, constants=constants, opset=21)
        return kept.fits(graph.producer("d"))

    assert fits([127, 127, 0, 0])
    assert not fits([0, 0, 0, 127])


# By what is done with the result


def test_what_an_index_is_computed_from_is_exact_back_to_a_product():
    rows = [
        ("MatMul", "x,w", "p"),
        ("Add", "p,c", "a"),
        ("Floor", "a", "f"),
        ("Cast", "f", "y", {"to": INT64}),
        ("Neg", "a", "beside"),
    ]
    constants = {"w": np.eye(4, dtype=np.float32), "c": np.float32(0.5)}
    found = reasons(rows, "y,beside", constants)
    assert found == dict.fromkeys(["f", "a"], "an index or a size is computed from it, which must be exact")


@pytest.mark.parametrize(("to", "found"), [(TensorProto.INT32, True), (TensorProto.BOOL, False), (FLOAT, False)])
def test_only_whole_numbers_are_indexes(to, found):
    assert bool(reasons([("Floor", "x", "f"), ("Cast", "f", "y", {"to": to})]).get("f")) is found


def test_what_reads_values_out_of_range_stays_up_to_a_bound():
    rows = [
        ("Exp", "x", "e"),
        ("Neg", "e", "n"),
        ("Tanh", "n", "t"),
        ("Relu", "t", "y"),
    ]
    found = reasons(rows)
    assert list(found) == ["e", "n", "t"]
    assert found["n"] == found["t"] == "it combines values that this type may not hold"


def test_what_combines_values_out_of_range_with_others_ends_them():
    rows = [("Exp", "x", "e"), ("Add", "e,c", "a"), ("Relu", "x", "r"), ("Mul", "a,r", "m"), ("Neg", "m", "y")]
    assert list(reasons(rows, constants={"c": np.float32(1)})) == ["e", "a", "m"]


def test_a_square_is_out_of_range_and_a_sum_of_means_is_not():
    assert list(reasons([("Mul", "x,x", "s"), ("Neg", "s", "y")])) == ["s", "y"]
    assert list(reasons([("ReduceMean", "x", "m"), ("Neg", "m", "y")])) == ["m"]


def test_layers_that_share_a_weight_have_one_type():
    rows = [
        ("DequantizeLinear", "w,s,z", "d"),
        ("MatMul", "x,d", "a"),
        ("MatMul", "x,d", "b"),
        ("Neg", "b", "c"),
    ]
    constants = {"w": np.eye(4, dtype=np.int8), "s": np.float32(0.1), "z": np.int8(0)}
    found = reasons(rows, "a,c", constants, why={"a": "too large"})
    assert found == {"a": "too large", "b": "it shares a weight with a layer in float32"}
    assert reasons(rows, "a,c", constants) == {}


def test_readers_of_a_pair_share_nothing():
    rows = [
        ("QuantizeLinear", "x,s,z", "q"),
        ("DequantizeLinear", "q,s,z", "d"),
        ("Relu", "d", "a"),
        ("Relu", "d", "b"),
    ]
    found = reasons(rows, "a,b", {"s": np.float32(0.1), "z": np.int8(0)}, why={"a": "too large"})
    assert list(found) == ["a"]


# What has no type of its own


def test_free_nodes_take_any_type():
    rows = [
        ("QuantizeLinear", "x,s,z", "q"),
        ("DequantizeLinear", "q,s,z", "d"),
        ("Shape", "d", "n"),
        ("Size", "d", "m"),
        ("Cast", "n", "f", {"to": FLOAT}),
        ("Cast", "x", "i", {"to": INT64}),
        ("Cast", "x", "same", {"to": FLOAT}),
        ("Relu", "x", "y"),
        ("Add", "n,n", "whole"),
    ]
    graph, kept = rules(rows, "d,m,f,i,same,y,whole", {"s": np.float32(0.1), "z": np.int8(0)})
    free = {node.name for node in graph.nodes if kept.is_free(node)}
    assert free == {"q", "d", "n", "m", "f", "i"}
    assert {node.name for node in graph.nodes if kept.computes(node)} == {"same", "y"}
